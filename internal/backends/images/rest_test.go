package images

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	entry  = "0123456789abcdef01234567"
	digest = "sha256:0123456789abcdef0123456701234567012345670123456701234567012345ff"
)

// put makes files in a directory that were written two hours ago.
func put(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		content := []byte("something")
		if strings.HasPrefix(name, StateDir+"/base-") {
			content, _ = json.Marshal(known{Digest: digest, Format: "qcow2", Bytes: 9})
		}
		if strings.HasPrefix(name, StateDir+"/part-") && strings.HasSuffix(name, ".json") {
			content, _ = json.Marshal(validator{URL: "https://example.org/i"})
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
}

// sweep removes what is idle, and returns what it was and what is left.
func sweep(t *testing.T, dir string) (removed, left []string) {
	t.Helper()
	rests, err := Rests(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rests {
		if !r.Idle(time.Now()) {
			continue
		}
		if gone, err := r.Remove(time.Now()); err != nil || !gone {
			t.Errorf("%s: removed %v, %v", r.Path, gone, err)
		}
		removed = append(removed, filepath.Base(r.Path))
	}
	for _, pattern := range []string{"*", ".*", StateDir + "/*", StateDir + "/.*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, f := range found {
			if name, err := filepath.Rel(dir, f); err == nil && name != StateDir {
				left = append(left, name)
			}
		}
	}
	slices.Sort(left)
	return removed, slices.Compact(left)
}

func TestWhatNobodyWantsOfAFetchAnyMoreGoes(t *testing.T) {
	for name, files := range map[string][]string{
		"a part of a download, what is known of it, and what was unpacked": {"part-" + entry, "part-" + entry + ".json", "part-" + entry + ".unpacked"},
		"what is known of a part that is gone":                             {"part-" + entry + ".json"},
		"a write that was cut off":                                         {".part-" + entry + ".json123", ".base-" + entry + ".json45", ".pin-" + entry + ".json6"},
		"an upload's lock, and what was converted for it":                  {"upload-" + entry, "upload-" + entry + ".raw"},
		"a record without its base":                                        {"base-" + entry + ".json"},
		"a base without its record":                                        {"../pf-base-" + entry + ".qcow2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range files {
				put(t, dir, filepath.Join(StateDir, f))
			}
			if removed, left := sweep(t, dir); len(removed) == 0 || len(left) > 0 {
				t.Errorf("removed %v, left %v", removed, left)
			}
		})
	}
}

func TestWhatIsNoRestIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "pf-base-"+entry+".qcow2", StateDir+"/base-"+entry+".json", StateDir+"/pin-"+entry+".json",
		"pf-base-"+entry+"-0badcafe.qcow2", "pf-base-mine.qcow2", "part-"+entry, "disk.qcow2",
		StateDir+"/pf-aaaaaaaaaaaaaaaa.json", StateDir+"/pool", StateDir+"/part-mine", StateDir+"/.hidden")
	if removed, left := sweep(t, dir); len(removed) > 0 || len(left) != 11 {
		t.Errorf("removed %v, left %v", removed, left)
	}
}

func TestARestStaysWhileSomebodyIsAtItOrAskedForItLately(t *testing.T) {
	dir := t.TempDir()
	locked, fresh := filepath.Join(dir, StateDir, "part-"+entry), filepath.Join(dir, StateDir, "part-"+strings.Repeat("f", 24))
	put(t, dir, StateDir+"/"+filepath.Base(locked), StateDir+"/"+filepath.Base(locked)+".json", StateDir+"/"+filepath.Base(fresh))
	f, err := Lock(t.Context(), locked)
	if err != nil {
		t.Fatal(err)
	}
	touch(fresh)
	rests, err := Rests(dir)
	if err != nil || len(rests) != 2 || !rests[0].Busy || rests[0].Path != locked || rests[0].Source != "https://example.org/i" || rests[0].Bytes == 0 || rests[1].Busy {
		t.Errorf("found %+v, %v", rests, err)
	}
	if removed, left := sweep(t, dir); len(removed) > 0 || len(left) != 3 {
		t.Errorf("removed %v, left %v", removed, left)
	}
	// What was idle when it was listed need not be so any more.
	for _, r := range rests {
		r.Busy, r.Asked = false, time.Time{}
		if gone, err := r.Remove(time.Now()); gone || err != nil {
			t.Errorf("%s: removed %v, %v", r.Path, gone, err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if removed, _ := sweep(t, dir); fmt.Sprint(removed) != "["+filepath.Base(locked)+"]" {
		t.Errorf("once nobody is at it: removed %v", removed)
	}
}

func TestOnTheWayABaseIsARestUnlessSomebodyBringsItOn(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "pf-base-"+entry+".qcow2", StateDir+"/base-"+entry+".json", StateDir+"/upload-"+entry)
	lock, err := Lock(t.Context(), UploadLock(dir, entry))
	if err != nil {
		t.Fatal(err)
	}
	rests, err := Transit(dir)
	if err != nil || len(rests) != 2 || !rests[0].Busy || !rests[1].Busy {
		t.Fatalf("found %+v, %v; want the lock and the base, both busy", rests, err)
	}
	base := rests[1]
	if gone, err := base.Remove(time.Now()); gone || err != nil {
		t.Errorf("removed %v, %v", gone, err)
	}
	Unlock(lock)
	if gone, err := base.Remove(time.Now()); !gone || err != nil {
		t.Errorf("removed %v, %v", gone, err)
	}
	if _, left := sweep(t, dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
