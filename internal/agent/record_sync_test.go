package agent

import (
	"os"
	"testing"
)

// TestARecordWhoseSyncFailedIsWrittenAnew fails a sync by closing the file under it: what
// was put must be on disk before a sync says so, also where the kernel has forgotten it.
func TestARecordWhoseSyncFailedIsWrittenAnew(t *testing.T) {
	dir := t.TempDir()
	r, _, err := openRecord(dir, "h1")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.put([]entry{someEntry("a", 1)}, 1); err != nil {
		t.Fatal(err)
	}
	if err := r.file.Close(); err != nil {
		t.Fatal(err)
	}
	// As after a failed write-back: the pages are gone, and nobody tells.
	if err := os.Truncate(r.path(), 0); err != nil {
		t.Fatal(err)
	}
	if r.sync() == nil {
		t.Fatal("a sync of a closed file succeeded")
	}
	if err := r.sync(); err != nil {
		t.Fatal(err)
	}
	again, d, err := openRecord(dir, "h1")
	if err != nil || d.Lost() {
		t.Fatalf("reopened: %+v, %v", d, err)
	}
	if _, held, _, _ := again.known("a"); !held {
		t.Error("the entry is lost")
	}
}
