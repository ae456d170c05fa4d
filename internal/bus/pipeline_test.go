package bus_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// An assignment without its ledger entry would be a binding that nobody decided.
func TestNothingIsStoredBehindAWriteThatWasRefused(t *testing.T) {
	s := bustest.Start(t)
	nc, js := s.Connect("test")
	ctx := bustest.Context(t)
	if _, err := bus.Bootstrap(ctx, js, bus.Names{}, bus.BootstrapOptions{MaxBytes: 64 << 10}); err != nil {
		t.Fatal(err)
	}
	f, err := bus.Open(ctx, nc, js, bus.Names{}, "", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	n := f.Names()
	l := bustest.Lead(t, f, "a")
	small := bus.Write{Subject: n.Assign("h1", "p1", bus.NewULID()), Data: []byte("{}")}
	large := bus.Write{Subject: n.Ledger("proxy", "p1"), Data: make([]byte, 128<<10)}
	if err := l.Commit(ctx, []bus.Write{large, small}); !errors.Is(err, bus.ErrStreamFull) {
		t.Errorf("got %v, want ErrStreamFull", err)
	}
	st, err := js.Stream(ctx, n.Assignments())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.GetLastMsgForSubject(ctx, small.Subject); !errors.Is(err, jetstream.ErrMsgNotFound) {
		t.Errorf("the write behind the one that was refused: got %v, want none", err)
	}
}

// The leader foresees the sequences of its writes, which somebody else's write makes wrong.
func TestWritesInOrderGetPastSomebodyElsesWrite(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	ctx := bustest.Context(t)
	l := bustest.Lead(t, f, "a")
	n := f.Names()
	if _, err := js.Publish(ctx, n.Ledger("proxy", "foreign"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	writes := ledgers(n, 3)
	if err := l.Commit(ctx, writes); err != nil {
		t.Fatal(err)
	}
	seen := bustest.Follow(t, f, n.Assignments(), n.AllLedger())
	if m := seen.Next(); m.Subject != n.Ledger("proxy", "foreign") {
		t.Errorf("first: %s", m.Subject)
	}
	for _, w := range writes {
		if m := seen.Next(); m.Subject != w.Subject {
			t.Errorf("got %s, want %s", m.Subject, w.Subject)
		}
	}
}
