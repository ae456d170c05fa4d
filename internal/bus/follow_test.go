package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func publishIntents(t *testing.T, f *bus.Fleet, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		name := fmt.Sprintf("p%04d", i)
		if _, err := f.PublishIntent(bustest.Context(t), f.Names().IntentProxy(name), []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFollowReadsWhatIsThereInOrderThenSaysSoThenLiveMessages(t *testing.T) {
	_, f := bustest.Fleet(t)
	publishIntents(t, f, 0, 1200) // more than one pull
	ctx, cancel := context.WithCancel(bustest.Context(t))
	defer cancel()
	var got []string
	caught := -1
	done := make(chan error, 1)
	go func() {
		done <- f.Follow(ctx, f.Names().Intents(), "", func(m bus.Msg) error {
			got = append(got, string(m.Data))
			if len(got) == 1201 {
				cancel()
			}
			return nil
		}, func() {
			caught = len(got)
			publishIntents(t, f, 1200, 1201)
		})
	}()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's end", err)
	}
	for i, name := range got {
		if want := fmt.Sprintf("p%04d", i); name != want {
			t.Fatalf("message %d: got %s, want %s", i, name, want)
		}
	}
	if caught != 1200 {
		t.Errorf("caught up after %d messages, want 1200", caught)
	}
}

func TestFollowOfNothingIsCaughtUpAtOnce(t *testing.T) {
	_, f := bustest.Fleet(t)
	n := f.Names()
	bustest.Follow(t, f, n.States(), "").CaughtUp()
	publishIntents(t, f, 0, 3)
	seen := bustest.Follow(t, f, n.Intents(), n.IntentPool("*")).CaughtUp()
	publishIntents(t, f, 3, 4)
	seen.Quiet(50 * time.Millisecond)
}

// What was waited for may be replaced or removed before it is delivered.
func TestFollowIsCaughtUpWhenTheLastMessageIsRemovedMeanwhile(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	n := f.Names()
	const many = 2*bus.MaxPull + 1 // the first pull ends right before the last one
	publishIntents(t, f, 0, many)
	intents, err := js.Stream(bustest.Context(t), n.Intents())
	if err != nil {
		t.Fatal(err)
	}
	caught := make(chan struct{})
	ctx, cancel := context.WithCancel(bustest.Context(t))
	defer cancel()
	go f.Follow(ctx, n.Intents(), "", func(m bus.Msg) error { //nolint:errcheck // ends with ctx
		if m.Seq == 1 {
			bustest.Eventually(t, "the first pull is delivered", func() error {
				for c := range intents.ListConsumers(ctx).Info() {
					if c.Delivered.Stream == many-1 {
						return nil
					}
				}
				return errors.New("it is not")
			})
			return intents.DeleteMsg(ctx, many)
		}
		if m.Seq == many {
			t.Error("the last message was delivered; nothing was tested")
		}
		return nil
	}, func() { close(caught) })
	select {
	case <-caught:
	case <-ctx.Done():
		t.Error("never caught up")
	}
}

func TestFollowEndsWithTheErrorOfItsHandler(t *testing.T) {
	_, f := bustest.Fleet(t)
	publishIntents(t, f, 0, 1)
	want := errors.New("handler")
	err := f.Follow(bustest.Context(t), f.Names().Intents(), "", func(bus.Msg) error { return want }, func() {})
	if err != want {
		t.Errorf("got %v, want the handler's own error", err)
	}
}

func TestLiveMessagesComeAtOnce(t *testing.T) {
	_, f := bustest.Fleet(t)
	seen := bustest.Follow(t, f, f.Names().Intents(), "").CaughtUp()
	best := time.Hour
	for i := range 20 {
		start := time.Now()
		publishIntents(t, f, i, i+1)
		seen.Next()
		best = min(best, time.Since(start))
	}
	if best > 200*time.Millisecond {
		t.Errorf("the fastest of 20 took %v", best)
	}
}

// The limit is generous for a busy machine; 19 s was what ordered push consumers took.
func TestFollowRecoversSoonFromARestartWithoutAGap(t *testing.T) {
	s, f := bustest.Fleet(t)
	seen := bustest.Follow(t, f, f.Names().Intents(), "").CaughtUp()
	publishIntents(t, f, 0, 5)
	for range 5 {
		seen.Next()
	}
	person := s.Open("person")
	s.Restart()
	start := time.Now()
	bustest.Eventually(t, "publish", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := person.PublishIntent(ctx, f.Names().IntentProxy("after"), []byte("after"))
		return err
	})
	m := seen.Next()
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("recovered after %v", took)
	} else {
		t.Logf("recovered after %v", took)
	}
	if string(m.Data) != "after" {
		t.Errorf("got %s, want the one after the restart and nothing twice", m.Data)
	}
}

func TestFollowSurvivesTheLossOfItsConsumer(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	seen := bustest.Follow(t, f, f.Names().Intents(), "").CaughtUp()
	ctx := bustest.Context(t)
	intents, err := js.Stream(ctx, f.Names().Intents())
	if err != nil {
		t.Fatal(err)
	}
	deleted := 0
	for name := range intents.ConsumerNames(ctx).Name() {
		if err := intents.DeleteConsumer(ctx, name); err != nil {
			t.Fatal(err)
		}
		deleted++
	}
	if deleted == 0 {
		t.Fatal("no consumer to delete")
	}
	publishIntents(t, f, 0, 1)
	seen.Next()
}

func TestFollowSurvivesACutNetworkAndConflatesWhatItMissed(t *testing.T) {
	s, f := bustest.Fleet(t)
	wire := s.Wire()
	nc, js := wire.Connect(t, "reader")
	far, err := bus.Open(bustest.Context(t), nc, js, bus.Names{}, "", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := bustest.Follow(t, far, f.Names().Intents(), "").CaughtUp()
	publishIntents(t, f, 0, 1)
	seen.Next()
	wire.Cut()
	for range 3 {
		publishIntents(t, f, 0, 2)
	}
	wire.Heal()
	if a, b := seen.Next(), seen.Next(); a.Seq != 6 || b.Seq != 7 {
		t.Errorf("got sequences %d and %d, want the newest of both subjects, 6 and 7", a.Seq, b.Seq)
	}
	seen.Quiet(50 * time.Millisecond)
}

func TestFollowEndsWhenItsStreamIsNotTheSameAnyMore(t *testing.T) {
	remake := func(t *testing.T, s *bustest.Server, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig)) {
		t.Helper()
		ctx := bustest.Context(t)
		st, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := st.CachedInfo().Config
		change(&cfg)
		if err := js.DeleteStream(ctx, name); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			t.Fatal(err)
		}
	}
	same := func(*jetstream.StreamConfig) {}
	for what, spoil := range map[string]func(*testing.T, *bustest.Server, *bus.Fleet, jetstream.JetStream){
		"recreated with another incarnation": func(t *testing.T, s *bustest.Server, f *bus.Fleet, js jetstream.JetStream) {
			remake(t, s, js, f.Names().Intents(), func(c *jetstream.StreamConfig) {
				c.Metadata["io.proxyfleet.incarnation"] = bus.NewULID()
				c.FirstSeq = 100
			})
		},
		"restored to an older sequence": func(t *testing.T, s *bustest.Server, f *bus.Fleet, js jetstream.JetStream) {
			remake(t, s, js, f.Names().Intents(), same)
		},
		"restored, and written to beyond the old sequence": func(t *testing.T, s *bustest.Server, f *bus.Fleet, js jetstream.JetStream) {
			remake(t, s, js, f.Names().Intents(), same)
			publishIntents(t, f, 10, 30)
		},
		"lost": func(t *testing.T, s *bustest.Server, f *bus.Fleet, js jetstream.JetStream) {
			if err := js.DeleteStream(bustest.Context(t), f.Names().Intents()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s, f := bustest.Fleet(t)
			wire := s.Wire()
			nc, far := wire.Connect(t, "reader")
			reader, err := bus.Open(bustest.Context(t), nc, far, bus.Names{}, "", bustest.Log(t))
			if err != nil {
				t.Fatal(err)
			}
			publishIntents(t, f, 0, 10)
			seen := bustest.Follow(t, reader, f.Names().Intents(), "").CaughtUp()
			_, js := s.Connect("test")
			wire.Cut()
			spoil(t, s, f, js)
			wire.Heal()
			if err := seen.Err(); !errors.Is(err, bus.ErrStreamRegressed) {
				t.Errorf("got %v, want ErrStreamRegressed", err)
			} else {
				t.Log(err)
			}
		})
	}
}
