package bus_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/bus/natsd"
)

func state(proxy string, counter uint64) bus.State {
	return bus.State{Type: bus.TypeState, Proxy: proxy, UID: "u", Counter: counter, Phase: bus.PhaseRunning}
}

func counterOf(want uint64) func(bus.Msg) error {
	return func(m bus.Msg) error {
		s, err := bus.Decode[bus.State](m.Data)
		if err != nil {
			return err
		}
		if s.Counter != want {
			return fmt.Errorf("counter %d, want %d", s.Counter, want)
		}
		return nil
	}
}

func TestTheNewestStateIsStoredAndNoOlderOneAfterIt(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	link := s.Host("h1")
	seen := bustest.Follow(t, f, n.States(), "").CaughtUp()
	header := map[string][]string{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	for i := range uint64(500) {
		for _, p := range []string{"p1", "p2", "p3"} {
			link.PutState(state(p, i+1), header)
		}
	}
	link.PutHost(bus.Host{Type: bus.TypeHost, Counter: 9})
	if err := link.Flush(bustest.Context(t)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"p1", "p2", "p3"} {
		m := seen.Newest(n.StateProxy("h1", p, "u"), counterOf(500))
		if m.Header.Get("traceparent") == "" {
			t.Errorf("the state of %s has no trace context", p)
		}
	}
	seen.Newest(n.StateHost("h1"), counterOf(9))
	if len(header) != 1 {
		t.Errorf("the caller's header was written into: %v", header)
	}
	last := map[string]uint64{}
	for len(last) < 4 || last["p1"] < 500 || last["p2"] < 500 || last["p3"] < 500 {
		m := seen.Next()
		d, err := bus.Decode[bus.State](m.Data)
		if err != nil {
			t.Fatal(err)
		}
		if d.Counter <= last[d.Proxy] {
			t.Fatalf("%s: counter %d after %d", d.Proxy, d.Counter, last[d.Proxy])
		}
		last[d.Proxy] = d.Counter
	}
}

func TestStatesAreKeptWhileTheServerIsAway(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	link := s.Host("h1")
	s.Stop()
	for i := range uint64(100) {
		link.PutState(state("p1", i+1), nil)
		link.PutState(state(fmt.Sprint("q", i), 1), nil)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := link.Flush(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush without a server: got %v", err)
	}
	s.Restart()
	if err := link.Flush(bustest.Context(t)); err != nil {
		t.Fatal(err)
	}
	seen := bustest.Follow(t, f, n.States(), "").CaughtUp()
	seen.Newest(n.StateProxy("h1", "p1", "u"), counterOf(100))
	for i := range 100 {
		seen.Newest(n.StateProxy("h1", fmt.Sprint("q", i), "u"), counterOf(1))
	}
}

// A server that syncs every write syncs a batch once, and one that knows no batch gets all the
// same what it can take.
func TestThousandsOfStatesAtOnceAreAllStoredMostOfThemAsBatches(t *testing.T) {
	for name, batches := range map[string]bool{"as batches": true, "one by one, where the stream takes none": false} {
		t.Run(name, func(t *testing.T) {
			s, f := bustest.Fleet(t)
			nc, js := s.Connect("test")
			if !batches {
				refuseBatches(t, js, f.Names().States())
			}
			var alone atomic.Int32
			if _, err := nc.Subscribe("fleet.state.>", func(m *nats.Msg) {
				if m.Header.Get(jetstreamext.BatchIDHeader) == "" {
					alone.Add(1)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			link := s.Host("h1")
			for i := range 5000 {
				link.PutState(state(fmt.Sprint("p", i), 1), nil)
			}
			if err := link.Flush(bustest.Context(t)); err != nil {
				t.Fatal(err)
			}
			if got := stored(t, js, f.Names().States()); got != 5000 {
				t.Errorf("%d states stored", got)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			if n := alone.Load(); batches && n > 1000 {
				t.Errorf("%d of 5000 states came one by one", n)
			}
		})
	}
}

func TestClosingDropsWhatIsNotStoredAndReturns(t *testing.T) {
	s, _ := bustest.Fleet(t)
	link := s.Host("h1")
	s.Stop()
	link.PutState(state("p1", 1), nil)
	done := make(chan struct{})
	go func() {
		link.Close()
		link.Close()
		link.PutState(state("p1", 2), nil)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(bustest.Deadline):
		t.Error("close does not return")
	}
}

// BenchmarkStates is how long an agent takes that has 5,000 states to say at once, as batches
// and, for comparison, one by one.
func BenchmarkStates(b *testing.B) {
	for _, sync := range []bool{false, true} {
		for _, batches := range []bool{true, false} {
			name := map[bool]string{false: "sync=default", true: "sync=always"}[sync] + map[bool]string{false: "/way=singly", true: "/way=batches"}[batches]
			b.Run(name, func(b *testing.B) {
				s := bustest.StartWith(b, natsd.Config{SyncAlways: sync})
				_, js := s.Connect("test")
				if _, err := bus.Bootstrap(bustest.Context(b), js, bus.Names{}, small); err != nil {
					b.Fatal(err)
				}
				if !batches {
					refuseBatches(b, js, bus.Names{}.States())
				}
				link := s.Host("h1")
				for n := uint64(1); b.Loop(); n++ {
					for i := range 5000 {
						link.PutState(state(fmt.Sprint("p", i), n), nil)
					}
					if err := link.Flush(bustest.Context(b)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func refuseBatches(t testing.TB, js jetstream.JetStream, name string) {
	t.Helper()
	stream, err := js.Stream(bustest.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowAtomicPublish = false
	if _, err := js.UpdateStream(bustest.Context(t), cfg); err != nil {
		t.Fatal(err)
	}
}
