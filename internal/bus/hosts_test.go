package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func TestAHostsConsumerIsConfiguredAsDocumented(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	for range 2 { // the second time it is brought up to date
		admit(t, f, "h1")
	}
	c, err := js.Consumer(bustest.Context(t), f.Names().Assignments(), "agent-h1")
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.CachedInfo().Config
	text, err := json.MarshalIndent(withoutServerKeys(cfg, cfg.Metadata), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	i := f.Installation()
	golden(t, "consumer.json", []byte(strings.NewReplacer(i.ID, "(installation)", i.Incarnation, "(incarnation)").Replace(string(text))+"\n"))
}

func TestOfTwoAgentsWithOneNameOneIsServed(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	leader := bustest.Lead(t, f, "a")
	admit(t, f, "h1")
	first := pull(t, s.Host("h1"))
	commit(t, leader, assign(n, "h1", "p0", bus.NewULID()))
	first.next()
	second := pull(t, s.Host("h1"))
	bustest.Eventually(t, "the second agent pulls", func() error { return twoWait(s, f) })
	for i := range 20 {
		commit(t, leader, assign(n, "h1", fmt.Sprint("p", i), bus.NewULID()))
		first.next()
	}
	second.quiet(50 * time.Millisecond)

	// A new session is served at once when the coordinator unpins the old one.
	first.stop()
	if err := f.UnpinHost(bustest.Context(t), "h1"); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	commit(t, leader, assign(n, "h1", "after", bus.NewULID()))
	if d := second.next(); d.Proxy != "after" {
		t.Errorf("got %s", d.Proxy)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the new session waited %v, until the pin had expired", took)
	}
}

func twoWait(s *bustest.Server, f *bus.Fleet) error {
	_, js := s.Connect("look")
	c, err := js.Consumer(context.Background(), f.Names().Assignments(), "agent-h1")
	if err != nil {
		return err
	}
	if got := c.CachedInfo().NumWaiting; got < 2 {
		return fmt.Errorf("%d pulls wait", got)
	}
	return nil
}

func TestAConsumerThatIsGoneNeedsNoUnpinAndIsMadeByAResync(t *testing.T) {
	s, f := bustest.Fleet(t)
	leader := bustest.Lead(t, f, "a")
	link := s.Host("h1")
	host := pull(t, link)
	commit(t, leader, assign(f.Names(), "h1", "p", bus.NewULID()))
	bustest.Eventually(t, "the host misses its consumer", func() error {
		if !link.NoConsumer() {
			return errors.New("it does not")
		}
		return nil
	})
	if err := f.UnpinHost(bustest.Context(t), "h1"); err != nil {
		t.Error(err)
	}
	if err := f.ResyncHost(bustest.Context(t), "h1", bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	if d := host.next(); d.Proxy != "p" || link.NoConsumer() {
		t.Errorf("got %s; without a consumer: %v", d.Proxy, link.NoConsumer())
	}
}

func TestResyncDeliversEverythingAgain(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	leader := bustest.Lead(t, f, "a")
	admit(t, f, "h1")
	a := pull(t, s.Host("h1"))
	commit(t, leader, assign(n, "h1", "p1", "u1"), assign(n, "h1", "p2", "u2"))
	for range 2 {
		if one, two := a.next(), a.next(); one.Proxy != "p1" || two.Proxy != "p2" {
			t.Errorf("got %s and %s", one.Proxy, two.Proxy)
		}
		if err := f.ResyncHost(bustest.Context(t), "h1", bus.Admission{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHostPullsTellsWhetherAnAgentIsThere(t *testing.T) {
	s, f := bustest.Fleet(t)
	ctx := bustest.Context(t)
	// Without a consumer as well: what else is to be done for the host waits for the answer.
	if got, err := f.HostPulls(ctx, "h1"); got || err != nil {
		t.Errorf("without a consumer: got %v, %v", got, err)
	}
	admit(t, f, "h1")
	if got, err := f.HostPulls(ctx, "h1"); got || err != nil {
		t.Errorf("without an agent: got %v, %v", got, err)
	}
	a := pull(t, s.Host("h1"))
	bustest.Eventually(t, "the agent pulls", func() error {
		if got, err := f.HostPulls(ctx, "h1"); !got || err != nil {
			return fmt.Errorf("got %v, %v", got, err)
		}
		return nil
	})
	a.stop()
	bustest.Eventually(t, "the agent has left", func() error {
		if got, err := f.HostPulls(ctx, "h1"); got || err != nil {
			return fmt.Errorf("got %v, %v", got, err)
		}
		return nil
	})
}

func TestBeatsArriveAndOthersAreLeftOut(t *testing.T) {
	s, f := bustest.Fleet(t)
	nc, _ := s.Connect("foreign")
	link := s.Host("h1")
	type seen struct {
		host string
		beat bus.Beat
	}
	got := make(chan seen, 64)
	ctx, cancel := context.WithCancel(bustest.Context(t))
	done := make(chan error, 1)
	go func() { done <- f.Beats(ctx, func(h string, b bus.Beat) { got <- seen{h, b} }) }()
	want := seen{"h1", bus.Beat{Type: bus.TypeBeat, HostID: "id", Session: 3, Seq: 7, Digest: "d", Resync: true}}
	bustest.Eventually(t, "a beat", func() error {
		if err := nc.Publish(f.Names().Beat("h2"), []byte("not a beat")); err != nil {
			return err
		}
		if err := link.Beat(want.beat); err != nil {
			return err
		}
		select {
		case s := <-got:
			if s != want {
				t.Errorf("got %+v, want %+v", s, want)
			}
			return nil
		case <-time.After(50 * time.Millisecond):
			return errors.New("none yet")
		}
	})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	s.Stop()
	bustest.Eventually(t, "a beat without a connection", func() error {
		if link.Beat(bus.Beat{}) == nil {
			return errors.New("it was kept for later")
		}
		return nil
	})
}
