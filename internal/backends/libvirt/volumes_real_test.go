//go:build real

package libvirt

import (
	"testing"

	"proxyfleet/internal/backends"
)

func TestAGuestIsMadeThroughVolumes(t *testing.T) {
	h := hostOn(t, startDaemon(t).throughVolumes())
	req := request(newRef())
	if i := h.ensure(t, req); i.Status != backends.StatusRunning {
		t.Errorf("made: %+v", i)
	}
	t.Log(h.Virsh(t, "vol-list", "default"))
	h.ensure(t, req)
	if l, err := h.List(t.Context()); err != nil || len(l.Instances) != 1 || len(l.Unread)+len(l.Leftovers) != 0 {
		t.Errorf("listing: %+v, %v", l, err)
	}
	h.delete(t, req.Ref)
	t.Log(h.Virsh(t, "vol-list", "default"))
}
