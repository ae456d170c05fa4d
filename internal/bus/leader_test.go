package bus_test

import (
	"errors"
	"testing"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func TestCommitStoresLedgerAndAssignmentsTogether(t *testing.T) {
	_, f := bustest.Fleet(t)
	l := bustest.Lead(t, f, "a")
	n := f.Names()
	uid := bus.NewULID()
	writes := []bus.Write{
		{Subject: n.Ledger("proxy", "p1"), Data: bus.Encode(bus.Ledger{Type: bus.TypeLedger, Kind: "proxy", Name: "p1", UID: uid})},
		{Subject: n.Assign("h1", "p1", uid), Data: bus.Encode(bus.Assignment{Type: bus.TypeAssignment, Proxy: "p1", UID: uid})},
	}
	if err := l.Commit(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	seen := bustest.Follow(t, f, n.Assignments(), "").CaughtUp()
	for _, w := range writes {
		seen.Newest(w.Subject, func(bus.Msg) error { return nil })
	}
}

func TestALeaderThatWasReplacedWritesNothing(t *testing.T) {
	s, f := bustest.Fleet(t)
	old := bustest.Lead(t, f, "a")
	newer := bustest.Lead(t, s.Open("other"), "b")
	if newer.Term() != old.Term()+1 {
		t.Errorf("term %d after %d", newer.Term(), old.Term())
	}
	n := f.Names()
	err := old.Commit(t.Context(), []bus.Write{{Subject: n.Ledger("proxy", "p1"), Data: []byte("{}")}})
	if !errors.Is(err, bus.ErrFenced) {
		t.Errorf("commit: got %v, want ErrFenced", err)
	}
	for _, b := range []string{n.Proxies(), n.Pools(), n.Hosts(), n.Endpoints()} {
		err = old.CommitBucket(t.Context(), b, []bus.KVWrite{{Key: "p1", Value: []byte("{}")}})
		if !errors.Is(err, bus.ErrFenced) {
			t.Errorf("commit to %s: got %v, want ErrFenced", b, err)
		}
		if err := newer.CommitBucket(t.Context(), b, []bus.KVWrite{{Key: "p1", Value: []byte("{}")}}); err != nil {
			t.Errorf("commit of the new leader to %s: %v", b, err)
		}
	}
	if err := newer.Commit(t.Context(), []bus.Write{{Subject: n.Ledger("proxy", "p1"), Data: []byte("{}")}}); err != nil {
		t.Error(err)
	}
}
