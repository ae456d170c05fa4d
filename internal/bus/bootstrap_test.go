package bus_test

import (
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

var update = flag.Bool("update", false, "write golden files and schemas anew")

var small = bus.BootstrapOptions{MaxBytes: bustest.MaxBytes}

// golden compares got with a file under testdata, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-want +got); go test -update writes it anew:\n%s", path, d)
	}
}

// The golden file is what the server says of each stream and bucket after a bootstrap.
func TestStreamsAndBucketsAreConfiguredAsDocumented(t *testing.T) {
	s := bustest.Start(t)
	_, js := s.Connect("test")
	ctx := bustest.Context(t)
	inst, err := bus.Bootstrap(ctx, js, bus.Names{}, bus.BootstrapOptions{MaxBytes: bustest.MaxBytes, MaxHosts: 5000})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	list := js.ListStreams(ctx)
	configs := map[string]jetstream.StreamConfig{}
	for info := range list.Info() {
		configs[info.Config.Name] = info.Config
	}
	for _, name := range []string{"FLEET_INTENTS", "FLEET_ASSIGNMENTS", "FLEET_LEASE", "FLEET_STATES", "FLEET_EVENTS",
		"KV_fleet_proxies", "KV_fleet_pools", "KV_fleet_hosts", "KV_fleet_endpoints"} {
		cfg, ok := configs[name]
		if !ok {
			t.Errorf("no stream %s", name)
		}
		delete(configs, name)
		text, err := json.MarshalIndent(withoutServerKeys(cfg, cfg.Metadata), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		out.Write(text)
		out.WriteString("\n")
	}
	if len(configs) > 0 {
		t.Errorf("streams that nobody asked for: %v", configs)
	}
	text := strings.NewReplacer(inst.ID, "(installation)", inst.Incarnation, "(incarnation)").Replace(out.String())
	golden(t, "streams.json", []byte(text))
}

// withoutServerKeys removes from metadata what depends on the server's version.
func withoutServerKeys[T any](doc T, metadata map[string]string) T {
	maps.DeleteFunc(metadata, func(k, _ string) bool { return strings.HasPrefix(k, "_nats.") })
	return doc
}

func TestBootstrapAgainChangesNothing(t *testing.T) {
	s := bustest.Start(t)
	_, js := s.Connect("test")
	ctx := bustest.Context(t)
	first, err := bus.Bootstrap(ctx, js, bus.Names{}, small)
	if err != nil {
		t.Fatal(err)
	}
	if !bus.ValidULID(first.ID) || !bus.ValidULID(first.Incarnation) {
		t.Errorf("installation %+v has no ULIDs", first)
	}
	for _, id := range []string{"", first.ID} {
		again, err := bus.Bootstrap(ctx, js, bus.Names{}, bus.BootstrapOptions{ID: id})
		if err != nil || again != first {
			t.Errorf("with id %q: got %+v, %v; want %+v", id, again, err, first)
		}
	}
	other := bus.BootstrapOptions{ID: bus.NewULID()}
	if _, err := bus.Bootstrap(ctx, js, bus.Names{}, other); !errors.Is(err, bus.ErrWrongInstallation) {
		t.Errorf("with another id: got %v, want ErrWrongInstallation", err)
	}
	if _, err := bus.Bootstrap(ctx, js, bus.Names{}, bus.BootstrapOptions{ID: "Not-A-ULID"}); err == nil {
		t.Error("an id that is no ULID was taken")
	}
}

func TestTwoBootstrapsAtOnceAgree(t *testing.T) {
	s := bustest.Start(t)
	ctx := bustest.Context(t)
	var got [4]bus.Installation
	var wg sync.WaitGroup
	for i := range got {
		_, js := s.Connect("test")
		wg.Go(func() {
			var err error
			if got[i], err = bus.Bootstrap(ctx, js, bus.Names{}, small); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, g := range got[1:] {
		if g != got[0] || g.ID == "" {
			t.Errorf("got %+v and %+v", got[0], g)
		}
	}
}

func TestAStreamThatWasLostIsNotMadeAnew(t *testing.T) {
	n := bus.Names{}
	for _, lost := range []string{n.Assignments(), n.Intents(), n.States(), n.LeaseStream(), n.Events()} {
		t.Run(lost, func(t *testing.T) {
			s := bustest.Start(t)
			nc, js := s.Connect("test")
			ctx := bustest.Context(t)
			s.Bootstrap()
			if err := js.DeleteStream(ctx, lost); err != nil {
				t.Fatal(err)
			}
			_, err := bus.Open(ctx, nc, js, n, "", bustest.Log(t))
			if !errors.Is(err, bus.ErrNotBootstrapped) || !strings.Contains(err.Error(), lost) {
				t.Errorf("open: got %v, want ErrNotBootstrapped that names %s", err, lost)
			}
			if _, err = bus.Bootstrap(ctx, js, n, small); !errors.Is(err, bus.ErrNotBootstrapped) {
				t.Errorf("bootstrap: got %v, want ErrNotBootstrapped", err)
			}
			if _, err := js.Stream(ctx, lost); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("%s was made anew: %v", lost, err)
			}
		})
	}
}

func TestABootstrapThatWasCutShortIsFinishedByTheNext(t *testing.T) {
	s := bustest.Start(t)
	nc, js := s.Connect("test")
	ctx := bustest.Context(t)
	n := bus.Names{}
	inst := s.Bootstrap()
	stream, err := js.Stream(ctx, n.Assignments())
	if err != nil {
		t.Fatal(err)
	}
	// As if it had ended after its first two streams.
	cfg := stream.CachedInfo().Config
	delete(cfg.Metadata, "io.proxyfleet.complete")
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{n.States(), n.Events(), n.Intents(), "KV_" + n.Hosts()} {
		if err := js.DeleteStream(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bus.Open(ctx, nc, js, n, "", bustest.Log(t)); !errors.Is(err, bus.ErrNotBootstrapped) {
		t.Errorf("open: got %v, want ErrNotBootstrapped", err)
	}
	again, err := bus.Bootstrap(ctx, js, n, small)
	if err != nil || again != inst {
		t.Errorf("got %+v, %v; want %+v", again, err, inst)
	}
	if _, err := bus.Open(ctx, nc, js, n, inst.ID, bustest.Log(t)); err != nil {
		t.Errorf("open after it: %v", err)
	}
}

func TestOpenRefusesAnotherInstallation(t *testing.T) {
	s := bustest.Start(t)
	nc, js := s.Connect("test")
	ctx := bustest.Context(t)
	if _, err := bus.Open(ctx, nc, js, bus.Names{}, "", bustest.Log(t)); !errors.Is(err, bus.ErrNotBootstrapped) {
		t.Errorf("before the bootstrap: got %v, want ErrNotBootstrapped", err)
	}
	s.Bootstrap()
	if _, err := bus.Open(ctx, nc, js, bus.Names{}, bus.NewULID(), bustest.Log(t)); !errors.Is(err, bus.ErrWrongInstallation) {
		t.Errorf("got %v, want ErrWrongInstallation", err)
	}
}

func TestOpenMakesMissingBucketsAnew(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	if err := js.DeleteKeyValue(bustest.Context(t), f.Names().Proxies()); err != nil {
		t.Fatal(err)
	}
	l := bustest.Lead(t, s.Open("again"), "a")
	if err := l.CommitBucket(bustest.Context(t), f.Names().Proxies(), []bus.KVWrite{{Key: "p", Value: []byte("{}")}}); err != nil {
		t.Error(err)
	}
}

func TestTwoFleetsShareAnAccount(t *testing.T) {
	s, one := bustest.Fleet(t)
	nc, js := s.Connect("test")
	ctx := bustest.Context(t)
	names := bus.Names{Root: "second-fleet"}
	if _, err := bus.Bootstrap(ctx, js, names, small); err != nil {
		t.Fatal(err)
	}
	two, err := bus.Open(ctx, nc, js, names, "", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.PublishIntent(ctx, names.IntentProxy("p1"), []byte(`{"name":"p1"}`)); err != nil {
		t.Fatal(err)
	}
	bustest.Follow(t, two, names.Intents(), "").CaughtUp().Next()
	bustest.Follow(t, one, one.Names().Intents(), "").CaughtUp().Quiet(50 * time.Millisecond)
}
