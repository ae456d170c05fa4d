package bus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/bus/natsd"
)

func ledger(n bus.Names, name string) bus.Write {
	return bus.Write{Subject: n.Ledger("proxy", name), Data: bus.Encode(bus.Ledger{Type: bus.TypeLedger, Kind: "proxy", Name: name})}
}

// ledgers are those of many names, in order.
func ledgers(n bus.Names, count int) []bus.Write {
	var writes []bus.Write
	for i := range count {
		writes = append(writes, ledger(n, fmt.Sprintf("p%04d", i)))
	}
	return writes
}

func stored(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	s, err := js.Stream(bustest.Context(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

func TestCommitStoresLedgerAndAssignmentsTogether(t *testing.T) {
	_, f := bustest.Fleet(t)
	l := bustest.Lead(t, f, "a")
	n := f.Names()
	uid := bus.NewULID()
	header := nats.Header{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	writes := []bus.Write{
		ledger(n, "p1"),
		{Subject: n.Assign("h1", "p1", uid), Data: bus.Encode(bus.Assignment{Type: bus.TypeAssignment, Proxy: "p1", UID: uid}), Header: header},
	}
	if err := l.Commit(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	seen := bustest.Follow(t, f, n.Assignments(), "").CaughtUp()
	for _, w := range writes {
		m := seen.Newest(w.Subject, func(bus.Msg) error { return nil })
		if got, want := m.Header.Get("traceparent"), w.Header.Get("traceparent"); got != want {
			t.Errorf("traceparent of %s: got %q, want %q", w.Subject, got, want)
		}
	}
	if len(header) != 1 {
		t.Errorf("the caller's header was written into: %v", header)
	}
}

func TestALeaderThatWasReplacedWritesNothing(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	old := bustest.Lead(t, f, "a")
	newer := bustest.Lead(t, s.Open("other"), "b")
	if newer.Term() != old.Term()+1 {
		t.Errorf("term %d after %d", newer.Term(), old.Term())
	}
	n := f.Names()
	before := stored(t, js, n.Assignments())
	for _, size := range []int{1, 2, 100} { // alone, in order, as a batch
		if err := old.Commit(t.Context(), ledgers(n, size)); !errors.Is(err, bus.ErrFenced) {
			t.Errorf("commit of %d: got %v, want ErrFenced", size, err)
		}
	}
	if after := stored(t, js, n.Assignments()); after != before {
		t.Errorf("%d messages, %d before", after, before)
	}
	for _, b := range []string{n.Proxies(), n.Pools(), n.Hosts(), n.Endpoints()} {
		err := old.CommitBucket(t.Context(), b, []bus.KVWrite{{Key: "p1", Value: []byte("{}")}})
		if !errors.Is(err, bus.ErrFenced) {
			t.Errorf("commit to %s: got %v, want ErrFenced", b, err)
		}
		bustest.NoKey(t, js, b, "p1")
		if err := newer.CommitBucket(t.Context(), b, []bus.KVWrite{{Key: "p1", Value: []byte("{}")}}); err != nil {
			t.Errorf("commit of the new leader to %s: %v", b, err)
		}
	}
	if err := newer.Commit(t.Context(), []bus.Write{ledger(n, "p1")}); err != nil {
		t.Error(err)
	}
	if err := old.RemoveState(t.Context(), bus.Msg{Subject: n.StateProxy("h1", "p1", "u"), Seq: 1}); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("remove a state: got %v, want ErrFenced", err)
	}
}

func TestManyWritesAreSplitAtTheServersLimitAndKeepTheirOrder(t *testing.T) {
	_, f := bustest.Fleet(t)
	l := bustest.Lead(t, f, "a")
	n := f.Names()
	writes := ledgers(n, 2001)
	if err := l.Commit(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	seen := bustest.Follow(t, f, n.Assignments(), n.AllLedger())
	for i := range writes {
		if m := seen.Next(); m.Subject != writes[i].Subject {
			t.Fatalf("message %d is on %s, want %s", i, m.Subject, writes[i].Subject)
		}
	}
	var records []bus.KVWrite
	for i := range 1001 {
		records = append(records, bus.KVWrite{Key: fmt.Sprintf("p%04d", i), Value: []byte("{}")})
	}
	if err := l.CommitBucket(t.Context(), n.Proxies(), records); err != nil {
		t.Fatal(err)
	}
}

// While the answers are lost the leader repeats; the server has stored the first attempt.
func TestACommitWhoseAnswerWasLostIsRepeatedUntilItIsKnown(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint(size, " writes"), func(t *testing.T) {
			s, f := bustest.Fleet(t)
			wire := s.Wire()
			nc, js := wire.Connect(t, "leader")
			ctx := bustest.Context(t)
			mine, err := bus.Open(ctx, nc, js, bus.Names{}, "", bustest.Log(t))
			if err != nil {
				t.Fatal(err)
			}
			l := bustest.Lead(t, mine, "a")
			n := f.Names()
			var writes []bus.Write
			for i := range size {
				writes = append(writes, ledger(n, fmt.Sprint("p", i)))
			}
			seen := bustest.Follow(t, f, n.Assignments(), n.AllLedger()).CaughtUp()
			wire.Mute()
			done := make(chan error, 1)
			go func() { done <- l.Commit(ctx, writes) }()
			for range size { // stored, but not acked
				seen.Next()
			}
			select {
			case err := <-done:
				t.Fatalf("commit returned without an answer: %v", err)
			default:
			}
			wire.Heal()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if err := l.Commit(ctx, []bus.Write{ledger(n, "next")}); err != nil {
				t.Errorf("the next commit: %v", err)
			}
		})
	}
}

func TestACommitOutlivesARestartOfTheServer(t *testing.T) {
	s, f := bustest.Fleet(t)
	l := bustest.Lead(t, f, "a")
	n := f.Names()
	s.Stop()
	done := make(chan error, 1)
	go func() {
		done <- l.Commit(bustest.Context(t), []bus.Write{ledger(n, "p1"), ledger(n, "p2")})
	}()
	time.Sleep(300 * time.Millisecond)
	s.Restart()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestACommitEndsWithItsContextAndSaysThatTheOutcomeIsOpen(t *testing.T) {
	s, f := bustest.Fleet(t)
	l := bustest.Lead(t, f, "a")
	s.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := l.Commit(ctx, []bus.Write{ledger(f.Names(), "p1")})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, bus.ErrFenced) || !strings.Contains(err.Error(), "not known") {
		t.Errorf("got %v", err)
	}
}

func TestOfTwoTakeoversAtOnceTheLaterOneLeads(t *testing.T) {
	s, f := bustest.Fleet(t)
	n := f.Names()
	leaders := make(chan *bus.Leader, 8)
	for i := range 8 {
		f := s.Open(fmt.Sprint("c", i))
		go func() {
			l, err := f.Lead(bustest.Context(t), fmt.Sprint("c", i))
			if err != nil && !errors.Is(err, bus.ErrFenced) {
				t.Errorf("lead: %v", err)
			}
			leaders <- l
		}()
	}
	var won []*bus.Leader
	for range 8 {
		if l := <-leaders; l != nil {
			won = append(won, l)
		}
	}
	writers := 0
	for _, l := range won {
		err := errors.Join(l.Commit(t.Context(), []bus.Write{ledger(n, "p1")}),
			l.CommitBucket(t.Context(), n.Proxies(), []bus.KVWrite{{Key: "p1", Value: []byte("{}")}}))
		if err == nil {
			writers++
		} else if !errors.Is(err, bus.ErrFenced) {
			t.Error(err)
		}
	}
	if writers > 1 {
		t.Errorf("%d leaders write", writers)
	}
	if l := bustest.Lead(t, f, "last"); l.Commit(t.Context(), []bus.Write{ledger(n, "p1")}) != nil {
		t.Error("nobody can lead any more")
	}
}

func TestAStateIsRemovedUnlessThereIsANewerOne(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	l := bustest.Lead(t, f, "a")
	ctx := bustest.Context(t)
	subject := f.Names().StateProxy("h1", "p1", bus.NewULID())
	states := bustest.Follow(t, f, f.Names().States(), "")
	put := func(doc string) bus.Msg {
		t.Helper()
		if _, err := js.Publish(ctx, subject, []byte(doc)); err != nil {
			t.Fatal(err)
		}
		return states.Next()
	}
	old := put(`{"phase":"Gone"}`)
	newer := put(`{"phase":"Gone","counter":2}`)
	for _, c := range []struct {
		what   string
		remove bus.Msg
		left   string
	}{
		{"replaced", old, string(newer.Data)},
		{"the newest", newer, ""},
		{"removed already", newer, ""},
	} {
		if err := l.RemoveState(ctx, c.remove); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		st, err := js.Stream(ctx, f.Names().States())
		if err != nil {
			t.Fatal(err)
		}
		m, err := st.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if string(m.Data) != c.left {
			t.Errorf("%s: %q is left, want %q", c.what, m.Data, c.left)
		}
		if c.left == "" && m.Header.Get("Nats-TTL") == "" {
			t.Errorf("%s: the removal stays for ever", c.what)
		}
	}
}

// TestWhatWasRemovedDoesNotComeBackWhenTheServerIsKilled starts a server from what another
// one has on disk while it runs, which is what a killed one leaves.
func TestWhatWasRemovedDoesNotComeBackWhenTheServerIsKilled(t *testing.T) {
	s := bustest.StartWith(t, natsd.Config{SyncAlways: true})
	s.Bootstrap()
	f := s.Open("test")
	l := bustest.Lead(t, f, "a")
	ctx := bustest.Context(t)
	subject := f.Names().Assign("h1", "p1", bus.NewULID())
	for _, w := range []bus.Write{{Subject: subject, Data: []byte("running")}, {Subject: subject, Data: []byte("tombstone")}, bus.Removal(subject)} {
		if err := l.Commit(ctx, []bus.Write{w}); err != nil {
			t.Fatal(err)
		}
	}
	left := t.TempDir()
	if err := os.CopyFS(left, os.DirFS(s.StoreDir())); err != nil {
		t.Fatal(err)
	}
	_, js := bustest.StartWith(t, natsd.Config{StoreDir: left}).Connect("test")
	st, err := js.Stream(ctx, f.Names().Assignments())
	if err != nil {
		t.Fatal(err)
	}
	if m, err := st.GetLastMsgForSubject(ctx, subject); err != nil || len(m.Data) > 0 {
		t.Errorf("on the subject is %+v (%v), want the removal", m, err)
	}
}

// TestAFleetWhoseAssignmentsAreOlderThanItsBucketsIsLedAtOnce takes the fence back, as a
// restored backup does.
func TestAFleetWhoseAssignmentsAreOlderThanItsBucketsIsLedAtOnce(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	for _, holder := range []string{"a", "b", "c"} {
		bustest.Lead(t, f, holder)
	}
	assignments, err := js.Stream(bustest.Context(t), f.Names().Assignments())
	if err != nil {
		t.Fatal(err)
	}
	fence, err := assignments.GetLastMsgForSubject(bustest.Context(t), f.Names().Fence())
	if err != nil {
		t.Fatal(err)
	}
	if err := assignments.DeleteMsg(bustest.Context(t), fence.Sequence); err != nil {
		t.Fatal(err)
	}
	d := bustest.Lead(t, f, "d")
	if d.Term() != 4 || d.Lost() == "" {
		t.Errorf("it leads in term %d, want 4; what was lost: %q", d.Term(), d.Lost())
	}
	if e := bustest.Lead(t, f, "e"); e.Lost() != "" {
		t.Errorf("the next one finds lost what was there: %s", e.Lost())
	}
}
