//go:build real

package libvirt

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
	"proxyfleet/internal/backends/libvirt/libvirttest"
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

func TestWhatFetchesHaveLeftIsListedAndRemovedOnceNobodyWantsIt(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(daemon) daemon
		stopAt  string
		want    int // rests: files on this machine, and the volume
	}{
		"by files, in the middle of a fetch":        {func(d daemon) daemon { return d }, "image.publish", 1},
		"through volumes, before the upload":        {daemon.throughVolumes, "base.upload", 2},
		"through volumes, before it is noted whole": {daemon.throughVolumes, "base.record", 2},
		"on devices, before it is noted whole":      {func(d daemon) daemon { return d }, "base.record", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var d daemon
			if strings.HasPrefix(name, "on devices") {
				d = daemon{Daemon: libvirttest.StartLVM(t)}
			} else {
				d = c.prepare(startDaemon(t))
			}
			h := hostOn(t, d)
			later := func() time.Time { return time.Now().Add(2 * time.Hour) }
			look := func(want int, busy bool) {
				t.Helper()
				found, err := h.ListImages(t.Context())
				if err != nil || len(found) != want {
					t.Errorf("listed %+v, %v, want %d", found, err, want)
				}
				for _, x := range found {
					if !x.Unfinished || x.InUse != busy || x.Path == "" || x.Bytes == 0 && !busy {
						t.Errorf("listed %+v, want it unfinished, busy: %v", x, busy)
					}
				}
			}
			prune := func(want int) {
				t.Helper()
				removed, err := h.PruneImages(t.Context(), math.MaxInt64)
				if err != nil || len(removed) != want {
					t.Errorf("removed %+v, %v, want %d", removed, err, want)
				}
			}
			ctx := backends.WithSteps(t.Context(), func(label string) error {
				if label != c.stopAt {
					return nil
				}
				h.now = later
				look(c.want+strings.Count(label, "base."), true) // an upload's lock as well
				prune(0)
				h.now = time.Now
				return errors.New("killed")
			})
			if _, err := h.PullImage(ctx, "empty", nil); err == nil {
				t.Fatal("it was not stopped")
			}
			look(c.want, false)
			h.now = later
			prune(c.want)
			look(0, false)
			if l := h.imageFiles(t); len(l) > 0 {
				t.Errorf("left %v", l)
			}
			// And what was left does not hinder the next.
			h.now = time.Now
			if _, err := h.PullImage(t.Context(), "empty", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAHalfUploadIsRemovedByAnAgentThatLostItsOwnDirectory(t *testing.T) {
	h := hostOn(t, startDaemon(t).throughVolumes())
	ctx := backends.WithSteps(t.Context(), func(label string) error {
		if label == "base.upload" {
			return errors.New("killed")
		}
		return nil
	})
	if _, err := h.PullImage(ctx, "empty", nil); err == nil {
		t.Fatal("it was not stopped")
	}
	own := h.Dir + "/agent"
	must(t, os.RemoveAll(own))
	if found, err := h.ListImages(t.Context()); err != nil || len(found) != 1 || !found[0].Unfinished || exists(own) {
		t.Errorf("listed %+v, %v; want the volume, and nothing made by looking", found, err)
	}
	if removed, err := h.PruneImages(t.Context(), math.MaxInt64); err != nil || len(removed) != 1 {
		t.Errorf("removed %+v, %v", removed, err)
	}
	if left := h.imageFiles(t); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestABaseThatLostItsRecordStaysWhileAGuestIsBuiltOnIt(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(daemon) daemon
		lose    func(h host, digest string)
	}{
		"by files": {func(d daemon) daemon { return d }, func(h host, _ string) {
			records, err := filepath.Glob(h.PoolDir() + "/" + images.StateDir + "/base-*.json")
			must(t, err)
			for _, r := range records {
				must(t, os.Remove(r))
			}
		}},
		"through volumes": {daemon.throughVolumes, func(h host, digest string) {
			h.Virsh(t, "vol-delete", "--pool", "default", volumes{b: h.Backend}.baseStem(digest)+".json")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOn(t, c.prepare(startDaemon(t)))
			req := stopped()
			h.ensure(t, req)
			whole, err := h.ListImages(t.Context())
			must(t, err)
			c.lose(h, whole[0].Digest)
			h.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
			if removed, err := h.PruneImages(t.Context(), 0); err != nil || len(removed) > 0 {
				t.Errorf("removed %+v, %v", removed, err)
			}
			h.delete(t, req.Ref)
			if removed, err := h.PruneImages(t.Context(), 0); err != nil || len(removed) != 1 || removed[0].Path != whole[0].Path || !removed[0].Unfinished {
				t.Errorf("removed %+v, %v, want %s", removed, err, whole[0].Path)
			}
		})
	}
}

// imageFiles is everything of images on this machine and in the pool, but what entries are
// pinned to: that outlives images.
func (h host) imageFiles(t testing.TB) (found []string) {
	t.Helper()
	for _, pattern := range []string{"pf-base*", images.StateDir + "/*", images.StateDir + "/.*"} {
		for _, dir := range []string{h.PoolDir(), h.Dir + "/agent/images"} {
			names, err := filepath.Glob(filepath.Join(dir, pattern))
			must(t, err)
			found = append(found, names...)
		}
	}
	for vol := range strings.FieldsSeq(h.Virsh(t, "vol-list", "default")) {
		if strings.HasPrefix(vol, "pf-base") {
			found = append(found, vol)
		}
	}
	return slices.DeleteFunc(found, func(path string) bool { return strings.HasPrefix(filepath.Base(path), "pin-") })
}
