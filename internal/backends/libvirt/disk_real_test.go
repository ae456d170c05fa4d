//go:build real

package libvirt

import (
	"os"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

func TestAUEFIGuestHasVariablesOfItsOwnAndTheyGoWithIt(t *testing.T) {
	h := startHost(t)
	a, b := request(newRef()), request(newRef())
	a.Image, b.Image = "uefi", "uefi"
	h.ensure(t, a)
	h.ensure(t, b)
	for _, req := range []backends.Request{a, b} {
		if p := h.place().nvram(backends.InstanceName(req.UID)); !exists(p) {
			t.Errorf("%s is not there", p)
		}
		xml := h.Virsh(t, "dumpxml", backends.InstanceName(req.UID))
		if !strings.Contains(xml, "OVMF_CODE") || strings.Contains(xml, "secure='yes'") {
			t.Errorf("want UEFI without Secure Boot:\n%s", xml)
		}
	}
	h.delete(t, a.Ref)
	if !exists(h.place().nvram(backends.InstanceName(b.UID))) {
		t.Error("the other's variables went along")
	}
	h.delete(t, b.Ref)
}

func TestADiskThatIsGoneIsTold_AndMadeAgain(t *testing.T) {
	h := startHost(t)
	for name, running := range map[string]bool{"while it runs": true, "while it is off": false} {
		t.Run(name, func(t *testing.T) {
			req := request(newRef())
			n := backends.InstanceName(req.UID)
			h.ensure(t, req)
			if !running {
				h.Virsh(t, "destroy", n)
			}
			must(t, os.Remove(h.place().disk(n)))
			if i := h.get(t, req.Ref); i.Status != backends.StatusBroken || i.Reason != "DiskMissing" {
				t.Errorf("got %+v, want Broken", i)
			}
			if i := h.ensure(t, req); i.Status != backends.StatusRunning || !exists(h.place().disk(n)) {
				t.Errorf("mended: %+v", i)
			}
			h.delete(t, req.Ref)
		})
	}
}

func TestADiskThatDoesNotFitIsMadeAnew(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	for name, spoil := range map[string]func(disk string){
		"cut off":      func(disk string) { must(t, os.Truncate(disk, 100)) },
		"another size": func(disk string) { libvirttest.QemuImg(t, "resize", "-q", disk, "2G") },
		"no overlay":   func(disk string) { libvirttest.QemuImg(t, "create", "-q", "-f", "qcow2", disk, "1G") },
		"another base": func(disk string) {
			libvirttest.QemuImg(t, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", h.Image(), disk, "1G")
		},
		"not its format": func(disk string) { libvirttest.QemuImg(t, "create", "-q", "-f", "raw", disk, "1G") },
	} {
		h.ensure(t, req)
		h.Virsh(t, "destroy", n)
		spoil(h.place().disk(n))
		h.ensure(t, req)
		base, err := openBase(t, h, req)
		if err != nil || !overlayFits(t.Context(), h.place().disk(n), base, 1<<30) {
			// It is locked while its guest runs; Inspect shares.
			t.Errorf("%s: the disk was not made anew (%v)", name, err)
		}
	}
	h.delete(t, req.Ref)
}

func TestAMarkerThatWasLostIsWrittenAgain(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	before := h.ensure(t, req)
	must(t, os.Remove(h.place().marker(n)))
	if i := h.ensure(t, req); i.Mark != before.Mark || i.ID != before.ID {
		t.Errorf("got %+v, want %+v", i, before)
	}
	if !exists(h.place().marker(n)) {
		t.Error("the marker is still missing")
	}
	must(t, os.Remove(h.place().marker(n)))
	h.delete(t, req.Ref)
}

func TestABaseStaysWhenItsGuestsGoAndIsNotFetchedAgain(t *testing.T) {
	h := startHost(t)
	first := request(newRef())
	h.ensure(t, first)
	h.delete(t, first.Ref)
	must(t, os.Remove(h.Image())) // whoever fetched again would fail now
	second := request(newRef())
	h.ensure(t, second)
	h.delete(t, second.Ref)
}

func TestAnImageLargerThanItsDiskIsPermanentAndMakesNothing(t *testing.T) {
	h := startHost(t)
	libvirttest.QemuImg(t, "create", "-q", "-f", "qcow2", h.Image(), "3G")
	req := request(newRef())
	_, err := h.Ensure(t.Context(), req, nil)
	wantClass(t, err, backends.ErrPermanent)
	if left := h.Traces(t, req.UID); len(left) > 0 {
		t.Errorf("made: %v", left)
	}
}
