//go:build real

package libvirt

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

var somebody = backends.Owner{Installation: "02installation", HostID: "01host"}

// tidyAfter has a backend tidy up as if so much time had passed.
func (h host) tidyAfter(t testing.TB, d time.Duration) {
	t.Helper()
	h.now = func() time.Time { return time.Now().Add(d) }
	must(t, h.Tidy(t.Context()))
}

func TestAVolumeForAMarkerThatWasNeverWrittenGoesAndSomebodyElsesStays(t *testing.T) {
	for name, d := range map[string]func() daemon{
		"files":   func() daemon { return startDaemon(t).throughVolumes() },
		"devices": func() daemon { return daemon{Daemon: libvirttest.StartLVM(t), volumes: true} },
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOn(t, d())
			names := func() string { return h.Virsh(t, "vol-list", "default") }
			req, other := request(newRef()), request(newRef())
			ctx := backends.WithSteps(t.Context(), func(label string) error {
				if label == "marker.write" {
					return errors.New("killed")
				}
				return nil
			})
			before := names()
			if _, err := h.Ensure(ctx, req, nil); err == nil {
				t.Fatal("it was not stopped")
			}
			must(t, h.removeBases(t))
			left := names()
			h.tidyAfter(t, 2*time.Hour) // an agent that has just started
			if now := names(); now != left || now == before {
				t.Errorf("it may be on its way: got\n%s, was\n%s", now, left)
			}
			theirs := markerName(backends.InstanceName(other.UID), somebody)
			h.Virsh(t, "vol-create-as", "default", theirs, "4096", "--format", "raw")
			h.tidyAfter(t, 3*time.Hour+time.Minute)
			h.tidyAfter(t, 9*time.Hour)
			h.Virsh(t, "vol-info", "--pool", "default", theirs)
			_, err := h.Ensure(t.Context(), other, nil)
			for _, err := range []error{err, h.Delete(t.Context(), other.Ref)} {
				wantClass(t, err, backends.ErrConflict)
				if err == nil || !strings.Contains(err.Error(), theirs+" in the pool is of another host or installation") {
					t.Errorf("got %v, want it to say whose it is not", err)
				}
			}
			h.Virsh(t, "vol-delete", "--pool", "default", theirs)
			must(t, h.removeBases(t))
			if now := names(); now != before {
				t.Errorf("got\n%s, want\n%s", now, before)
			}
		})
	}
}

// removeBases removes all bases.
func (h host) removeBases(t testing.TB) error {
	now := h.now
	defer func() { h.now = now }()
	h.now = func() time.Time { return time.Now().Add(24 * time.Hour) }
	_, err := h.PruneImages(t.Context(), 0)
	return err
}

func TestADraftOfAMarkerGoesAndSomebodyElsesStays(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	req.Desired = backends.Stopped
	h.ensure(t, req)
	n := backends.InstanceName(newRef().UID)
	ours, theirs := place{dir: h.PoolDir(), tag: ownerTag(h.owner)}, place{dir: h.PoolDir(), tag: ownerTag(somebody)}
	temporary := func(p place) string {
		return filepath.Join(p.state(), "."+filepath.Base(p.draft(n))+"123")
	}
	for _, path := range []string{ours.draft(n), temporary(ours), theirs.draft(n), temporary(theirs)} {
		must(t, os.WriteFile(path, nil, 0o600))
	}
	h.tidyAfter(t, 0)
	if !exists(ours.draft(n)) || !exists(temporary(ours)) {
		t.Error("one that may be on its way was removed")
	}
	h.tidyAfter(t, 2*time.Hour)
	if exists(ours.draft(n)) || exists(temporary(ours)) {
		t.Error("what nobody goes on with is still there")
	}
	if !exists(theirs.draft(n)) || !exists(temporary(theirs)) {
		t.Error("what is somebody else's was removed")
	}
	h.now = time.Now
	h.delete(t, req.Ref)
}

func TestTidyingLeavesBasesWithinTheCap(t *testing.T) {
	h := startHost(t)
	_, err := h.PullImage(t.Context(), "empty", nil)
	must(t, err)
	for gib, want := range map[int]int{0: 1, 1: 1} {
		h.host.Limits.ImageCacheGiB = gib
		h.tidyAfter(t, 2*time.Hour)
		if found, err := h.ListImages(t.Context()); err != nil || len(found) != want {
			t.Errorf("cap %d GiB: %+v, %v, want %d", gib, found, err, want)
		}
	}
}
