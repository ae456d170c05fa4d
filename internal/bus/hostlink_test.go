package bus_test

import (
	"context"
	"errors"
	"fmt"
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
	if err := f.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
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
	commit(t, leader, assign(n, "h2", "other", bus.NewULID()), w, ledger(n, "p1"))
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
