package coordinator

import (
	"errors"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// followed is a replica that has read everything of f, as if it had done so long ago.
func followed(t *testing.T, f *bus.Fleet) *replica {
	t.Helper()
	r := newReplica(f, func(input) {})
	done := make(chan error, 1)
	ctx := bustest.Context(t)
	go func() { done <- r.follow(ctx) }()
	select {
	case <-r.loaded:
	case err := <-done:
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loadedAt = r.loadedAt.Add(-2 * trusted)
	return r
}

// commit stores ledger entries of one name each, or removals of them.
func commit(t *testing.T, l *bus.Leader, writes ...bus.Write) {
	t.Helper()
	if err := l.Commit(bustest.Context(t), writes); err != nil {
		t.Fatal(err)
	}
}

func TestAStandbyHasWhatWasStoredWhenItCatchesUp(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	l := bustest.Lead(t, f, "a")
	r := followed(t, s.Open("standby"))
	for range 50 {
		commit(t, l, bus.Write{Subject: n.Ledger("proxy", "a"), Data: []byte("{}")}, bus.Write{Subject: n.Ledger("proxy", "b"), Data: []byte("{}")})
		end, _, err := f.End(bustest.Context(t), n.Assignments())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.catchUp(bustest.Context(t)); err != nil {
			t.Fatal(err)
		}
		if got := r.at(n.Assignments()); got < end {
			t.Fatalf("caught up at %d, want %d", got, end)
		}
	}
}

// TestCatchingUpDoesNotWaitForWhatWasRemoved has an end that nobody will ever deliver.
func TestCatchingUpDoesNotWaitForWhatWasRemoved(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	_, js := s.Connect("test")
	ack, err := js.Publish(bustest.Context(t), n.IntentProxy("a"), []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	intents, err := js.Stream(bustest.Context(t), n.Intents())
	if err != nil {
		t.Fatal(err)
	}
	if err := intents.DeleteMsg(bustest.Context(t), ack.Sequence); err != nil {
		t.Fatal(err)
	}
	if _, err := followed(t, f).catchUp(bustest.Context(t)); err != nil {
		t.Error(err)
	}
}

// A server that was killed brings messages back behind what was read already.
func TestALeaderReadsAnewWhatCameBackAndNotWhatIsMissing(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	l := bustest.Lead(t, f, "a")
	r := followed(t, s.Open("b"))
	commit(t, l, bus.Write{Subject: n.Ledger("proxy", "a"), Data: []byte("{}")}, bus.Write{Subject: n.Ledger("proxy", "b"), Data: []byte("{}")})
	if _, err := r.catchUp(bustest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.auditReturns(bustest.Context(t)); err != nil {
		t.Errorf("all is known: %v", err)
	}
	r.mu.Lock()
	r.live["fleet.ledger.proxy.removed"] = true
	r.mu.Unlock()
	if err := r.auditReturns(bustest.Context(t)); err != nil {
		t.Errorf("something is missing: %v", err)
	}
	r.mu.Lock()
	delete(r.live, "fleet.ledger.proxy.removed")
	delete(r.live, n.Ledger("proxy", "b"))
	r.mu.Unlock()
	if err := r.auditReturns(bustest.Context(t)); !errors.Is(err, errStale) {
		t.Errorf("an entry that nobody knew came back: got %v, want it to be read anew", err)
	}
}

func TestAStandbyReadsAnewWhatChangedUnseen(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	_, js := s.Connect("test")
	l := bustest.Lead(t, f, "a")
	r := followed(t, s.Open("standby"))
	commit(t, l, bus.Write{Subject: n.Ledger("proxy", "a"), Data: []byte("{}")}, bus.Write{Subject: n.Ledger("proxy", "b"), Data: []byte("{}")})
	commit(t, l, bus.Removal(n.Ledger("proxy", "a")))
	audit := func() error {
		t.Helper()
		if _, err := r.catchUp(bustest.Context(t)); err != nil {
			t.Fatal(err)
		}
		return r.audit(bustest.Context(t))
	}
	if err := audit(); err != nil {
		t.Errorf("a marker that is still there: %v", err)
	}
	assignments, err := js.Stream(bustest.Context(t), n.Assignments())
	if err != nil {
		t.Fatal(err)
	}
	remove := func(name string) {
		t.Helper()
		m, err := assignments.GetLastMsgForSubject(bustest.Context(t), n.Ledger("proxy", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := assignments.DeleteMsg(bustest.Context(t), m.Sequence); err != nil {
			t.Fatal(err)
		}
	}
	remove("a") // the marker, as it goes by itself
	if err := audit(); err != nil {
		t.Errorf("a marker that went by itself: %v", err)
	}
	remove("b")
	if err := audit(); !errors.Is(err, errStale) {
		t.Errorf("an entry that somebody removed: got %v, want it to be read anew", err)
	}
	r.loadedAt = time.Now()
	if err := r.audit(bustest.Context(t)); err != nil {
		t.Errorf("what was read a moment ago is not doubted: %v", err)
	}
}
