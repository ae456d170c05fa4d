//go:build real

package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"proxyfleet/internal/backends/libvirt/libvirttest"
	"proxyfleet/internal/bus"
)

// TestABadImageNeverBecomesABase offers what an image server, or somebody who may write to
// it, could serve. The record has to say why nothing runs, and the pool keeps nothing of it.
func TestABadImageNeverBecomesABase(t *testing.T) {
	d := libvirttest.Start(t)
	// A pool that is small without filling the machine.
	if err := syscall.Mount("tmpfs", d.PoolDir(), "tmpfs", 0, "size=8g,mode=0711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(d.PoolDir(), syscall.MNT_DETACH) })

	dir := t.TempDir()
	good, backed := filepath.Join(dir, "good"), filepath.Join(dir, "backed")
	libvirttest.QemuImg(t, "create", "-q", "-f", "qcow2", "-o", "preallocation=full", good, "1M")
	libvirttest.QemuImg(t, "create", "-q", "-f", "qcow2", "-b", "/etc/passwd", "-F", "raw", backed, "1M")
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	named, err := os.ReadFile(backed)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		key    string
		serve  []byte // nil: the large one
		digest string
		code   string // of the error; a host without room is left for another, so that the proxy waits
		text   string
	}{
		{key: "another-digest", serve: whole, digest: fmt.Sprintf("sha256:%x", sha256.Sum256(named)), code: "Permanent", text: "sha256"},
		{key: "cut-off", serve: whole[:len(whole)-1<<19], code: "Permanent", text: "cut off"},
		{key: "names-a-file-of-the-host", serve: named, code: "Permanent", text: "backing file"},
		{key: "too-large", code: "NoCapacity", text: "too-large"},
	}
	large := filepath.Join(dir, "large") // sparse: 20 GiB of nothing behind an image
	if err := errors.Join(os.WriteFile(large, whole, 0o600), os.Truncate(large, 20<<30)); err != nil {
		t.Fatal(err)
	}
	images := map[string][]byte{}
	for _, c := range cases {
		images["/"+c.key] = c.serve
	}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if images[r.URL.Path] == nil {
			http.ServeFile(w, r, large)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(images[r.URL.Path]))
	}))
	t.Cleanup(origin.Close)
	yaml := &strings.Builder{}
	for _, c := range cases {
		fmt.Fprintf(yaml, "  %s: {url: '%s/%s', digest: '%s'}\n", c.key, origin.URL, c.key, c.digest)
	}

	f := newFleet(t, "always")
	f.startAgent("kvm-1", strings.Replace(libvirtAgent(d), "images:\n", "images:\n"+yaml.String(), 1))
	for _, c := range cases {
		f.publish(c.key, fmt.Sprintf(`{"name":%q,"spec":{"allowFrom":["10.0.0.0/8"],"image":%q}}`, c.key, c.key))
	}
	for _, c := range cases {
		t.Run(c.key, func(t *testing.T) {
			r := f.in(t).await(c.key, 60*time.Second, "refused with "+c.code, func(r bus.Record) bool {
				return r.Error != nil && r.Error.Code == c.code
			})
			if !strings.Contains(r.Error.Message, c.text) {
				t.Errorf("the record says %q, want why: %s", r.Error.Message, c.text)
			}
			if c.code == "Permanent" && r.Phase != bus.PhaseFailed {
				t.Errorf("phase %s, want Failed", r.Phase)
			}
		})
	}
	bases, err := filepath.Glob(filepath.Join(d.PoolDir(), "pf-base-*"))
	if err != nil || len(bases) > 0 {
		t.Errorf("bases in the pool: %v, %v", bases, err)
	}
	if domains := d.Virsh(t, "list", "--all", "--name"); strings.TrimSpace(domains) != "" {
		t.Errorf("domains: %s", domains)
	}
}
