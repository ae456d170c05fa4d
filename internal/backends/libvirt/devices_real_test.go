//go:build real

package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

// startOnDevices opens a backend on a pool whose volumes are devices, with an image of 1 MiB
// that begins with a text.
func startOnDevices(t testing.TB, text string) host {
	t.Helper()
	d := daemon{Daemon: libvirttest.StartLVM(t)}
	raw := filepath.Join(t.TempDir(), "raw")
	must(t, os.WriteFile(raw, append([]byte(text), make([]byte, 1<<20)...), 0o600))
	libvirttest.QemuImg(t, "convert", "-f", "raw", "-O", "qcow2", raw, d.Image())
	return hostOn(t, d)
}

func TestAGuestIsMadeOnDevices(t *testing.T) {
	const text = "what the image begins with"
	h := startOnDevices(t, text)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	if i := h.ensure(t, req); i.Status != backends.StatusRunning {
		t.Errorf("made: %+v", i)
	}
	xml := h.Virsh(t, "dumpxml", n)
	for _, want := range []string{"<disk type='block' device='disk'>", "<driver name='qemu' type='raw'", "<source dev='/dev/" + filepath.Base(h.Dir) + "/" + n + ".raw'"} {
		if !strings.Contains(xml, want) {
			t.Errorf("want %s in:\n%s", want, xml)
		}
	}
	f, err := os.Open("/dev/" + filepath.Base(h.Dir) + "/" + n + ".raw")
	must(t, err)
	defer f.Close()
	head := make([]byte, len(text))
	if _, err := f.Read(head); err != nil || string(head) != text {
		t.Errorf("the disk begins with %q, %v; want the image's content", head, err)
	}
	if l, err := h.List(t.Context()); err != nil || len(l.Instances) != 1 || len(l.Unread)+len(l.Leftovers) != 0 {
		t.Errorf("listing: %+v, %v", l, err)
	}
	must(t, h.Delete(t.Context(), req.Ref))
	if left := h.Virsh(t, "vol-list", "default"); strings.Contains(left, n) {
		t.Errorf("left: %s", left)
	}
	found, err := h.ListImages(t.Context())
	if err != nil || len(found) != 1 || found[0].Format != "raw" || found[0].InUse {
		t.Errorf("images: %+v, %v", found, err)
	}
}

func TestACopyThatMayBeHalfIsMadeAgain(t *testing.T) {
	h := startOnDevices(t, "image")
	req := stopped()
	var steps []string
	fail := ""
	ctx := backends.WithSteps(t.Context(), func(label string) error {
		steps = append(steps, label)
		if label == fail && strings.Contains(strings.Join(steps, " "), "disk.create") {
			return errors.New("killed")
		}
		return nil
	})
	fail = "marker.write" // which says that the copy is whole
	if _, err := h.Ensure(ctx, req, nil); err == nil {
		t.Fatal("the step did not fail")
	}
	fail, steps = "", nil
	if _, err := h.Ensure(ctx, req, nil); err != nil || !strings.Contains(strings.Join(steps, " "), "volume.remove disk.create marker.write") {
		t.Errorf("%v, steps %v; want the disk made anew", err, steps)
	}
	steps = nil
	if _, err := h.Ensure(ctx, req, nil); err != nil || strings.Contains(strings.Join(steps, " "), "disk.create") {
		t.Errorf("%v, steps %v; want a whole copy left alone", err, steps)
	}
	must(t, h.Delete(t.Context(), req.Ref))
}
