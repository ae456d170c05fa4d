//go:build real

package images

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatSomebodyBuiltOnIsNamed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(file, qcow2(t, "a"), 0o600))
	b := fetch(t, newCache(t, Options{}), dir, Source{Key: "k", File: file})
	if built, err := BuiltOn(t.Context(), dir); err != nil || len(built) != 0 {
		t.Errorf("nothing is built on anything yet: %v, %v", built, err)
	}
	qemuImg(t, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", b.Path, filepath.Join(dir, "somebodys"), "2M")
	if built, err := BuiltOn(t.Context(), dir); err != nil || !built[b.Path] {
		t.Errorf("got %v, %v, want %s", built, err, b.Path)
	}
	must(t, os.WriteFile(filepath.Join(dir, "odd"), []byte(qcow2Magic+"and nothing more"), 0o600))
	if built, err := BuiltOn(t.Context(), dir); err == nil {
		t.Errorf("got %v; want an error, for the odd image may be built on anything", built)
	}
}

func TestABaseThatIsRemovedIsGoneAndListedNoMore(t *testing.T) {
	dir := t.TempDir()
	c := newCache(t, Options{})
	var bases []Base
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(t.TempDir(), "image")
		must(t, os.WriteFile(file, qcow2(t, name), 0o600))
		bases = append(bases, fetch(t, c, dir, Source{Key: name, File: file}))
	}
	must(t, Remove(dir, bases[0]))
	must(t, Remove(dir, bases[0]))
	found, err := List(dir)
	if err != nil || len(found) != 1 || found[0].Base != bases[1] || found[0].Bytes == 0 || found[0].Asked.IsZero() {
		t.Errorf("listed: %+v, %v; want the one that is left", found, err)
	}
}
