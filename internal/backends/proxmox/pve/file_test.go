package pve

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestASecondChangeWithinOneTimeStampIsSeen writes twice at what the file system takes for
// one moment.
func TestASecondChangeWithinOneTimeStampIsSeen(t *testing.T) {
	f := &file{path: filepath.Join(t.TempDir(), "token")}
	now := time.Now()
	for _, text := range []string{"one", "two", "six"} {
		if err := os.WriteFile(f.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(f.path, now, now); err != nil {
			t.Fatal(err)
		}
		if got, _, err := f.read(); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
}
