//go:build real

package libvirt

import (
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

func TestAGuestIsMadeThroughVolumes(t *testing.T) {
	h := hostOn(t, startDaemon(t).throughVolumes())
	req := request(newRef())
	if i := h.ensure(t, req); i.Status != backends.StatusRunning {
		t.Errorf("made: %+v", i)
	}
	h.ensure(t, req)
	if l, err := h.List(t.Context()); err != nil || len(l.Instances) != 1 || len(l.Unread)+len(l.Leftovers) != 0 {
		t.Errorf("listing: %+v, %v", l, err)
	}
	wantCheck(t, h, "pool/default", backends.CheckOK)
	h.Virsh(t, "vol-delete", "--pool", "default", backends.InstanceName(req.UID)+".qcow2")
	if i := h.get(t, req.Ref); i.Status != backends.StatusBroken || i.Reason != "DiskMissing" {
		t.Errorf("without its disk: %+v", i)
	}
	h.delete(t, req.Ref)
}

func TestOnlyBasesThatNothingIsBuiltOnArePruned(t *testing.T) {
	for name, prepare := range map[string]func(daemon) daemon{
		"by files":        func(d daemon) daemon { return d },
		"through volumes": daemon.throughVolumes,
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOn(t, prepare(startDaemon(t)))
			req := stopped()
			h.ensure(t, req)
			pruned := func(want int) {
				t.Helper()
				removed, err := h.PruneImages(t.Context(), 0)
				if err != nil || len(removed) != want {
					t.Errorf("removed %+v, %v, want %d", removed, err, want)
				}
			}
			later := time.Now().Add(2 * time.Hour)
			h.now = func() time.Time { return later }
			pruned(0)
			if found, err := h.ListImages(t.Context()); err != nil || len(found) != 1 || !found[0].InUse || found[0].Bytes == 0 {
				t.Errorf("listed: %+v, %v", found, err)
			}
			h.delete(t, req.Ref)
			h.now = time.Now
			pruned(0) // somebody has just asked for it
			h.now = func() time.Time { return later }
			pruned(1)
			got, err := h.PullImage(t.Context(), "empty", nil)
			if found, err2 := h.ListImages(t.Context()); err != nil || err2 != nil || len(found) != 1 || found[0].Path != got.Path {
				t.Errorf("pulled %+v, %v; listed %+v, %v", got, err, found, err2)
			}
		})
	}
}
