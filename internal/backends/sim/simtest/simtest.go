// Package simtest is the harness of the simulated backend, for its own conformance test and
// for the test of the suite itself. Tests alone import it.
package simtest

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/sim"
)

// worlds keeps the hosts of one harness by directory: events reach those who share one.
type worlds struct {
	mu     sync.Mutex // guards opened
	opened map[string]*sim.World
}

func (w *worlds) open(host string) (*sim.World, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if opened := w.opened[host]; opened != nil {
		return opened, nil
	}
	opened, err := sim.OpenWorld(host, false)
	if err != nil {
		return nil, err
	}
	w.opened[host] = opened
	return opened, nil
}

// Harness makes each host in a directory of its own, so that another process finds it.
func Harness() backendtest.Harness {
	worlds := &worlds{opened: map[string]*sim.World{}}
	return backendtest.Harness{
		NewHost: func(t testing.TB) string { return t.TempDir() },
		Open: func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
			w, err := worlds.open(host)
			if err != nil {
				return nil, err
			}
			return sim.New(sim.Config{}, sim.Options{Owner: owner, Log: log, World: w})
		},
		Request: func(ref backends.Ref) backends.Request {
			return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, DiskGiB: 10,
				Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
		},
		Traces: func(t testing.TB, host string, ref backends.Ref) []string {
			names, err := filepath.Glob(filepath.Join(host, backends.InstanceName(ref.UID)+"*"))
			if err != nil {
				t.Error(err)
			}
			return names
		},
		Plants:   map[string]backendtest.Plant{"instance": plant("instance"), "disk": plant("disk")},
		Oversize: func(req *backends.Request) { req.DiskGiB = 1 << 30 },
		Unread: func(t testing.TB, host string, ref backends.Ref) func() {
			path := file(host, ref, "instance")
			whole, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, whole[:len(whole)/2], 0o600))
			return func() { must(t, os.WriteFile(path, whole, 0o600)) }
		},
		Crash: func(t testing.TB, host string, ref backends.Ref) {
			w, err := worlds.open(host)
			must(t, err)
			must(t, w.Crash(ref.UID))
		},
		Vanish: func(t testing.TB, host string, ref backends.Ref) { must(t, os.Remove(file(host, ref, "instance"))) },
		Stall: func(t testing.TB, host string) func() {
			w, err := worlds.open(host)
			must(t, err)
			return w.Stall()
		},
		Lockout: func(t testing.TB, host string) func() {
			w, err := worlds.open(host)
			must(t, err)
			w.Fault(backends.ErrHostFault)
			return func() { w.Fault(nil) }
		},
	}
}

func file(host string, ref backends.Ref, kind string) string {
	return filepath.Join(host, backends.InstanceName(ref.UID)+"."+kind+".json")
}

func plant(kind string) backendtest.Plant {
	return func(t testing.TB, host string, ref backends.Ref, m backends.Mark) func() string {
		path := file(host, ref, kind)
		text := fmt.Sprintf(`{"mark":{"Installation":%q,"HostID":%q,"Proxy":%q,"UID":%q},"status":"Running"}`, m.Installation, m.HostID, m.Proxy, m.UID)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return func() string {
			b, err := os.ReadFile(path)
			return fmt.Sprint(string(b), err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
