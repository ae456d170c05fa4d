//go:build real

package libvirt

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

// stopped is a request for a guest that is made and does not run: what it takes is counted
// all the same.
func stopped() backends.Request {
	req := request(newRef())
	req.Desired = backends.Stopped
	return req
}

// TestFiftyCreatesAtOnceFillTheHostAndNoMore asks for more guests at once than the pool has
// room for. Each of them gets its answer.
func TestFiftyCreatesAtOnceFillTheHostAndNoMore(t *testing.T) {
	const asked, fit = 50, 20
	for name, prepare := range map[string]func(daemon) daemon{
		"by files":        func(d daemon) daemon { return d },
		"through volumes": daemon.throughVolumes,
	} {
		t.Run(name, func(t *testing.T) {
			h := hostOn(t, prepare(startSmallDaemon(t, "20500m"))) // 20 disks of 1 GiB, and the base
			h.host.Limits.Overcommit.Memory = 100
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			all := make([]backends.Request, asked)
			outcomes := make([]error, asked)
			var wg sync.WaitGroup
			for i := range all {
				all[i] = stopped()
				wg.Go(func() { _, outcomes[i] = h.Ensure(ctx, all[i], nil) })
			}
			wg.Wait()
			var made, refused []backends.Request
			for i, err := range outcomes {
				switch {
				case err == nil:
					made = append(made, all[i])
				case backends.Class(err) == backends.ErrNoCapacity:
					refused = append(refused, all[i])
				default:
					t.Errorf("create %d: %v", i, err)
				}
			}
			if len(made) != fit || len(refused) != asked-fit {
				t.Fatalf("%d were made and %d refused, want %d and %d", len(made), len(refused), fit, asked-fit)
			}
			if left := h.Traces(t, refused[0].UID); len(left) > 0 {
				t.Errorf("left of one that was refused: %v", left)
			}
			// What goes makes room, stopped or not.
			h.delete(t, made[0].Ref)
			h.ensure(t, refused[0])
			_, err := h.Ensure(ctx, refused[1], nil)
			wantClass(t, err, backends.ErrNoCapacity)
		})
	}
}

// TestADiskThatIsFullAtAnyStepIsNoCapacityAndLeavesNothing fills a real, small pool right
// before each thing that is put into it.
func TestADiskThatIsFullAtAnyStepIsNoCapacityAndLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(daemon) daemon
		steps   []string
	}{
		"by files":        {func(d daemon) daemon { return d }, []string{"image.download", "marker.write", "disk.create", "seed.write"}},
		"through volumes": {daemon.throughVolumes, []string{"base.create", "marker.create", "disk.create", "seed.create"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.prepare(startSmallDaemon(t, "8m"))
			h := hostOn(t, d)
			h.host.Limits.Overcommit.Disk = 100_000 // or nothing would ever begin
			filler := filepath.Join(h.PoolDir(), "filler")
			for _, step := range c.steps {
				req := stopped()
				ctx := backends.WithSteps(t.Context(), func(label string) error {
					if label == step {
						fill(t, filler)
					}
					return nil
				})
				_, err := h.Ensure(ctx, req, nil)
				if backends.Class(err) != backends.ErrNoCapacity {
					t.Errorf("full at %s: %v, want NoCapacity", step, err)
				}
				if left := h.Traces(t, req.UID); len(left) > 0 {
					t.Errorf("full at %s: left %v", step, left)
				}
				must(t, os.Remove(filler))
				h.ensure(t, req) // with room again
				h.delete(t, req.Ref)
			}
		})
	}
}

// fill writes a file until its file system has no room left.
func fill(t testing.TB, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for chunk := 64 << 10; chunk > 0; {
		if _, err := f.Write(make([]byte, chunk)); err != nil {
			chunk /= 16
		}
	}
}

func TestAPoolThatStartsWithItsHostIsStartedWhenItIsTheSame(t *testing.T) {
	h := startHost(t)
	h.Virsh(t, "pool-autostart", "default")
	req := stopped()
	h.ensure(t, req)
	h.Virsh(t, "pool-destroy", "default")
	h.ensure(t, req)
	wantCheck(t, h, "pool/default", backends.CheckOK)

	// What is mounted there at other times is not there now.
	h.Virsh(t, "pool-destroy", "default")
	away := h.PoolDir() + ".away"
	must(t, os.Rename(h.PoolDir(), away))
	must(t, os.Mkdir(h.PoolDir(), 0o711))
	_, err := h.Ensure(t.Context(), stopped(), nil)
	wantClass(t, err, backends.ErrHostFault)
	wantCheck(t, h, "pool/default", backends.CheckPoolNotActive)
	must(t, os.Remove(h.PoolDir()))
	must(t, os.Rename(away, h.PoolDir()))
	h.delete(t, req.Ref)
}
