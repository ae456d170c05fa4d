//go:build real

package nocloud

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestXorrisoReadsASeedWithoutComplaint holds the image against a second reader, which is
// stricter than the first.
func TestXorrisoReadsASeedWithoutComplaint(t *testing.T) {
	user := bytes.Repeat([]byte{0, 1, 2, 0xff}, 3000)
	image, err := Build(Seed{InstanceID: "a", Hostname: "h", MAC: "52:54:00:00:00:01", UserData: user, VendorData: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	iso := filepath.Join(dir, "seed.iso")
	if err := os.WriteFile(iso, image, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("xorriso", "-abort_on", "WARNING", "-osirrox", "on", "-indev", iso,
		"-extract", "/", filepath.Join(dir, "out")).CombinedOutput()
	if err != nil {
		t.Fatalf("xorriso: %v\n%s", err, out)
	}
	for _, name := range []string{"meta-data", "network-config", "user-data", "vendor-data"} {
		if _, err := os.Stat(filepath.Join(dir, "out", name)); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "out", "user-data")); !bytes.Equal(got, user) {
		t.Error("user-data changed on its way")
	}
	label, err := exec.Command("blkid", "-p", "-o", "export", iso).CombinedOutput()
	if err != nil || !bytes.Contains(label, []byte("LABEL=cidata")) || !bytes.Contains(label, []byte("TYPE=iso9660")) {
		t.Errorf("blkid, which cloud-init asks: %v\n%s", err, label)
	}
}
