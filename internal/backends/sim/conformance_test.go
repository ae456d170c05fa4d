package sim_test

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

func TestMain(m *testing.M) { backendtest.Main(m, harness) }

func TestConformance(t *testing.T) { backendtest.Run(t, harness) }

// worlds keeps the hosts of this process: events reach those who share one.
var worlds sync.Map // directory → *sim.World

func world(host string) (*sim.World, error) {
	if w, ok := worlds.Load(host); ok {
		return w.(*sim.World), nil
	}
	w, err := sim.OpenWorld(host, false)
	worlds.Store(host, w)
	return w, err
}

var harness = backendtest.Harness{
	NewHost: func(t testing.TB) string { return t.TempDir() },
	Open: func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
		w, err := world(host)
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
		w, err := world(host)
		must(t, err)
		must(t, w.Crash(ref.UID))
	},
	Vanish: func(t testing.TB, host string, ref backends.Ref) { must(t, os.Remove(file(host, ref, "instance"))) },
	Differs: map[backendtest.Difference]string{
		backendtest.DiffersStall: "nothing stands behind it that could hang",
	},
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
