package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// agent pulls for a host and remembers what it was given.
type agent struct {
	t    *testing.T
	got  chan bus.Delivery
	stop func()

	mu    sync.Mutex // guards the fields that follow
	fail  error      // what recording returns
	sizes []int
}

func pull(t *testing.T, l *bus.HostLink) *agent {
	ctx, cancel := context.WithCancel(context.Background())
	a := &agent{t: t, got: make(chan bus.Delivery, 1<<14)}
	done := make(chan error, 1)
	go func() { done <- l.Assignments(ctx, a.record) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Assignments ended with %v", err)
		}
	})
	t.Cleanup(a.stop)
	return a
}

func (a *agent) record(ds []bus.Delivery) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail != nil {
		return a.fail
	}
	a.sizes = append(a.sizes, len(ds))
	for _, d := range ds {
		a.got <- d
	}
	return nil
}

func (a *agent) setFail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = err
}

func (a *agent) next() bus.Delivery {
	a.t.Helper()
	select {
	case d := <-a.got:
		return d
	case <-time.After(bustest.Deadline):
		a.t.Fatalf("no assignment within %v", bustest.Deadline)
		return bus.Delivery{}
	}
}

func (a *agent) quiet(d time.Duration) {
	a.t.Helper()
	select {
	case d := <-a.got:
		a.t.Errorf("unexpected assignment %+v", d)
	case <-time.After(d):
	}
}

func assign(n bus.Names, host, proxy, uid string) bus.Write {
	return bus.Write{Subject: n.Assign(host, proxy, uid), Data: bus.Encode(bus.Assignment{Type: bus.TypeAssignment, Proxy: proxy, UID: uid, Generation: 1, Desired: bus.DesiredRunning})}
}

func commit(t *testing.T, l *bus.Leader, writes ...bus.Write) {
	t.Helper()
	if err := l.Commit(bustest.Context(t), writes); err != nil {
		t.Fatal(err)
	}
}

func admit(t *testing.T, f *bus.Fleet, host string) {
	t.Helper()
	if err := f.AdmitHost(bustest.Context(t), host); err != nil {
		t.Fatal(err)
	}
}

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

func TestAHostGetsItsOwnAssignmentsOnceAndAtOnce(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	leader := bustest.Lead(t, f, "a")
	admit(t, f, "h1")
	link := s.Host("h1")
	a := pull(t, link)
	uid := bus.NewULID()
	w := assign(n, "h1", "p1", uid)
	w.Header = map[string][]string{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	commit(t, leader, assign(n, "h2", "other", bus.NewULID()), w, ledgerOf(n, "p1"))
	d := a.next()
	if d.Proxy != "p1" || d.UID != uid || d.Doc == nil || d.Doc.Generation != 1 || d.Err != nil || d.Seq == 0 {
		t.Errorf("got %+v", d)
	}
	if got := d.Header.Get("traceparent"); got != w.Header.Get("traceparent") {
		t.Errorf("traceparent: got %q", got)
	}
	if i, ok := link.Consumer(); !ok || i != f.Installation() {
		t.Errorf("installation of the consumer: got %+v, %v", i, ok)
	}
	best := time.Hour
	for range 20 {
		start := time.Now()
		commit(t, leader, assign(n, "h1", "p2", bus.NewULID()))
		a.next()
		best = min(best, time.Since(start))
	}
	if best > 500*time.Millisecond { // a pull that waited until it was full took 5 s
		t.Errorf("the fastest of 20 took %v", best)
	}
	a.quiet(50 * time.Millisecond)
}

func ledgerOf(n bus.Names, name string) bus.Write { return ledger(n, name) }

func TestManyAssignmentsComeInBoundedBatchesAndNoneIsMissed(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	leader := bustest.Lead(t, f, "a")
	var writes []bus.Write
	for i := range 1500 {
		writes = append(writes, assign(n, "h1", fmt.Sprint("p", i), bus.NewULID()))
	}
	commit(t, leader, writes...)
	admit(t, f, "h1")
	a := pull(t, s.Host("h1"))
	for i := range writes {
		if d := a.next(); n.Assign("h1", d.Proxy, d.UID) != writes[i].Subject {
			t.Fatalf("delivery %d: got %s", i, d.Proxy)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	together := 0
	for _, size := range a.sizes {
		if size > bus.MaxPull {
			t.Errorf("%d at once, more than MaxPull", size)
		}
		together = max(together, size)
	}
	if together < 2 {
		t.Error("each was recorded alone, though many were there")
	}
}

func TestWhatCouldNotBeRecordedComesAgain(t *testing.T) {
	s, f := bustest.Fleet(t)
	leader := bustest.Lead(t, f, "a")
	admit(t, f, "h1")
	a := pull(t, s.Host("h1"))
	a.setFail(errors.New("disk full"))
	commit(t, leader, assign(f.Names(), "h1", "p1", bus.NewULID()))
	a.quiet(300 * time.Millisecond)
	start := time.Now()
	a.setFail(nil)
	a.next()
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("came again after %v, which is the ack wait", took)
	}
	a.quiet(100 * time.Millisecond)
}

func TestBodiesThatAreNoAssignmentAreToldApartFromMarkers(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("foreign")
	n := f.Names()
	ctx := bustest.Context(t)
	admit(t, f, "h1")
	a := pull(t, s.Host("h1"))
	for _, c := range []struct {
		body    string
		wantErr bool
	}{
		{body: "", wantErr: false},
		{body: "not JSON", wantErr: true},
		{body: `{"proxy":"p1","uid":"other"}`, wantErr: true},
		{body: `{"proxy":"other","uid":"u"}`, wantErr: true},
		{body: `null`, wantErr: true},
	} {
		if _, err := js.Publish(ctx, n.Assign("h1", "p1", "u"), []byte(c.body)); err != nil {
			t.Fatal(err)
		}
		if d := a.next(); d.Doc != nil || (d.Err != nil) != c.wantErr || d.UID != "u" {
			t.Errorf("%q: got %+v", c.body, d)
		}
	}
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

func TestAnAgentWaitsForItsConsumerAndRebindsToANewOne(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	n := f.Names()
	leader := bustest.Lead(t, f, "a")
	link := s.Host("h1")
	a := pull(t, link)
	uid := bus.NewULID()
	commit(t, leader, assign(n, "h1", "p1", uid))
	a.quiet(100 * time.Millisecond)
	if _, ok := link.Consumer(); ok {
		t.Error("there is no consumer yet")
	}
	for range 2 {
		admit(t, f, "h1")
		if d := a.next(); d.UID != uid {
			t.Errorf("got %+v", d)
		}
		if err := js.DeleteConsumer(bustest.Context(t), n.Assignments(), n.Consumer("h1")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAssignmentsContinueSoonAfterARestartOfTheServer(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	leader := bustest.Lead(t, f, "a")
	admit(t, f, "h1")
	a := pull(t, s.Host("h1"))
	commit(t, leader, assign(n, "h1", "p1", bus.NewULID()))
	a.next()
	s.Restart()
	start := time.Now()
	commit(t, leader, assign(n, "h1", "p2", bus.NewULID()))
	if d := a.next(); d.Proxy != "p2" {
		t.Errorf("got %s, which was acked before", d.Proxy)
	}
	if took := time.Since(start); took > 6*time.Second {
		t.Errorf("took %v", took)
	} else {
		t.Logf("took %v", took)
	}
}

// The pin outlives a connection: without it a host would wait until it has expired.
func TestAssignmentsContinueSoonAfterACutNetwork(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	leader := bustest.Lead(t, f, "a")
	admit(t, f, "h1")
	wire := s.Wire()
	nc, js := wire.Connect(t, "agent-h1")
	link := bus.OpenHost(nc, js, n, "h1", bustest.Log(t))
	t.Cleanup(link.Close)
	a := pull(t, link)
	commit(t, leader, assign(n, "h1", "p1", bus.NewULID()))
	a.next()
	wire.Cut()
	commit(t, leader, assign(n, "h1", "p2", bus.NewULID()))
	time.Sleep(100 * time.Millisecond)
	wire.Heal()
	start := time.Now()
	a.next()
	if took := time.Since(start); took > 12*time.Second {
		t.Errorf("took %v", took)
	} else {
		t.Logf("took %v", took)
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
		if err := f.ResyncHost(bustest.Context(t), "h1"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHostPullsTellsWhetherAnAgentIsThere(t *testing.T) {
	s, f := bustest.Fleet(t)
	ctx := bustest.Context(t)
	if _, err := f.HostPulls(ctx, "h1"); err == nil {
		t.Error("a host that was never admitted has no answer")
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
