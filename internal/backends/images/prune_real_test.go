//go:build real

package images

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestPruningKeepsWhatIsUsedAndWhatSomebodyBuiltOn(t *testing.T) {
	dir := t.TempDir()
	c := newCache(t, Options{})
	bases := map[string]Base{}
	for i, name := range []string{"oldest", "old", "used", "built on", "fresh"} {
		file := filepath.Join(t.TempDir(), "image")
		must(t, os.WriteFile(file, qcow2(t, name), 0o600))
		b := fetch(t, c, dir, Source{Key: name, File: file})
		bases[name] = b
		if name != "fresh" {
			asked := time.Now().Add(-time.Duration(10-i) * time.Hour)
			must(t, os.Chtimes(knownPath(dir, b.Digest), asked, asked))
		}
	}
	qemuImg(t, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", bases["built on"].Path, filepath.Join(dir, "somebodys"), "2M")
	used := map[string]bool{bases["used"].Digest: true}

	removed, err := Prune(t.Context(), dir, 1<<40, used)
	if err != nil || len(removed) != 0 {
		t.Errorf("under the cap: removed %v, %v", removed, err)
	}
	info, err := os.Stat(bases["oldest"].Path)
	must(t, err)
	removed, err = Prune(t.Context(), dir, 4*info.Size()+info.Size()/2, used)
	if err != nil || len(removed) != 1 || removed[0] != bases["oldest"].Path {
		t.Errorf("one over the cap: removed %v, %v, want the oldest", removed, err)
	}
	removed, err = Prune(t.Context(), dir, 0, used)
	if err != nil || len(removed) != 1 || removed[0] != bases["old"].Path {
		t.Errorf("to nothing: removed %v, %v, want the one that is neither used nor fresh", removed, err)
	}
	for _, name := range []string{"used", "built on", "fresh"} {
		if b, err := Find(dir, bases[name].Digest, "qcow2"); err != nil || b.Path == "" {
			t.Errorf("%s is gone", name)
		}
	}
}

func TestPruningStopsAtAnImageThatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(file, qcow2(t, "a"), 0o600))
	b := fetch(t, newCache(t, Options{}), dir, Source{Key: "k", File: file})
	old := time.Now().Add(-5 * time.Hour)
	must(t, os.Chtimes(knownPath(dir, b.Digest), old, old))
	must(t, os.WriteFile(filepath.Join(dir, "odd"), []byte(qcow2Magic+"and nothing more"), 0o600))
	if removed, err := Prune(t.Context(), dir, 0, nil); err == nil || len(removed) > 0 {
		t.Errorf("removed %v, %v; want nothing, for the odd image may be built on it", removed, err)
	}
}
