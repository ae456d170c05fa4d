package bus_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// config is a stream's configuration as the server has it, without what depends on its version.
func config(t *testing.T, js jetstream.JetStream, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := js.Stream(bustest.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	return withoutServerKeys(cfg, cfg.Metadata)
}

func TestALostStreamIsMadeAnewAsItWas(t *testing.T) {
	n := bus.Names{}
	for _, lost := range []string{n.Intents(), n.States(), n.LeaseStream(), n.Events(), n.Assignments()} {
		t.Run(lost, func(t *testing.T) {
			s, f := bustest.Fleet(t)
			_, js := s.Connect("test")
			ctx := bustest.Context(t)
			was := config(t, js, lost)
			if _, err := f.PublishIntent(ctx, n.IntentProxy("p1"), []byte(`{"name":"p1"}`)); err != nil {
				t.Fatal(err)
			}
			if _, err := bus.Remake(ctx, js, n, lost, small); err == nil {
				t.Fatal("a stream that is there was made anew")
			}
			if err := js.DeleteStream(ctx, lost); err != nil {
				t.Fatal(err)
			}
			if _, err := bus.Remake(ctx, js, n, lost, bus.BootstrapOptions{ID: bus.NewULID()}); !errors.Is(err, bus.ErrWrongInstallation) {
				t.Errorf("for another installation: got %v", err)
			}
			inst, err := bus.Remake(ctx, js, n, lost, bus.BootstrapOptions{ID: f.Installation().ID, Replicas: 5, MaxBytes: 1})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Open("again").Installation(); got != inst || got.ID != f.Installation().ID {
				t.Errorf("opened %+v, made %+v, was %+v", got, inst, f.Installation())
			}
			if anew := inst.Incarnation != f.Installation().Incarnation; anew != (lost == n.Assignments()) {
				t.Errorf("a new incarnation: %v", anew)
			}
			now := config(t, js, lost)
			was.Metadata["io.proxyfleet.incarnation"] = inst.Incarnation
			if now.FirstSeq = was.FirstSeq; !maps.Equal(now.Metadata, was.Metadata) || now.Replicas != was.Replicas || now.MaxBytes != was.MaxBytes ||
				now.AllowMsgTTL != was.AllowMsgTTL || !slices.Equal(now.Subjects, was.Subjects) {
				t.Errorf("got %+v, want %+v", now, was)
			}
			if m, err := s.Open("look").Next(ctx, n.Intents(), 0); err != nil || (m == 0) != (lost == n.Intents()) {
				t.Errorf("the intents: got %d, %v", m, err)
			}
		})
	}
	t.Run("a name that is none", func(t *testing.T) {
		s, _ := bustest.Fleet(t)
		_, js := s.Connect("test")
		if _, err := bus.Remake(bustest.Context(t), js, n, "KV_fleet_proxies", small); err == nil {
			t.Error("a bucket was made anew")
		}
	})
}

// What the ledger accepted is known by its sequence: an intent that is published later must
// have a higher one, or it would count as old.
func TestIntentsGoOnBehindWhatTheLedgerAccepted(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	n, ctx := f.Names(), bustest.Context(t)
	commit(t, bustest.Lead(t, f, "a"),
		bus.Write{Subject: n.Ledger("proxy", "a"), Data: bus.Encode(bus.Ledger{Kind: "proxy", Name: "a", IntentSeq: 7})},
		bus.Write{Subject: n.Ledger("pool", "b"), Data: bus.Encode(bus.PoolLedger{Kind: "pool", Name: "b", IntentSeq: 41})},
		bus.Write{Subject: n.Ledger("proxy", "c"), Data: bus.Encode(bus.Ledger{Kind: "proxy", Name: "c", IntentSeq: 9})})
	if err := js.DeleteStream(ctx, n.Intents()); err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Remake(ctx, js, n, n.Intents(), small); err != nil {
		t.Fatal(err)
	}
	if seq, err := f.PublishIntent(ctx, n.IntentProxy("a"), []byte(`{"name":"a"}`)); err != nil || seq != 42 {
		t.Errorf("the next intent has sequence %d, %v; want 42", seq, err)
	}
}

func TestAssignmentsThatAreMadeAnewAreFrozenBeforeAnybodyOpensThem(t *testing.T) {
	s, f := bustest.Fleet(t)
	nc, js := s.Connect("test")
	n, ctx := f.Names(), bustest.Context(t)
	for _, lost := range []string{n.Assignments(), n.Events()} {
		if err := js.DeleteStream(ctx, lost); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bus.Remake(ctx, js, n, n.Events(), small); !errors.Is(err, bus.ErrNotBootstrapped) {
		t.Errorf("the events before the assignments: got %v", err)
	}
	first, err := bus.Remake(ctx, js, n, n.Assignments(), small)
	if err != nil {
		t.Fatal(err)
	}
	// As if it had been cut short.
	cfg := config(t, js, n.Assignments())
	delete(cfg.Metadata, "io.proxyfleet.complete")
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Open(ctx, nc, js, n, "", bustest.Log(t)); !errors.Is(err, bus.ErrNotBootstrapped) {
		t.Errorf("opened half-made: got %v", err)
	}
	again, err := bus.Remake(ctx, js, n, n.Assignments(), small)
	if err != nil || again != first {
		t.Errorf("finished as %+v, %v; want %+v", again, err, first)
	}
	if _, err := bus.Remake(ctx, js, n, n.Events(), small); err != nil {
		t.Error(err)
	}
	m := bustest.Follow(t, s.Open("again"), n.Assignments(), n.AllLedger()).Next()
	if entry, err := bus.Decode[bus.Ledger](m.Data); err != nil || entry.Frozen == "" {
		t.Errorf("the first that stands there is %s, %v", m.Data, err)
	}
}
