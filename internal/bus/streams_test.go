package bus_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func TestNobodyWipesIntentsOrStates(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	ctx := bustest.Context(t)
	n := f.Names()
	for stream, subject := range map[string]string{
		n.Intents():     n.IntentProxy("p1"),
		n.States():      n.StateHost("h1"),
		n.Assignments(): n.Ledger("proxy", "p1"),
	} {
		if _, err := js.Publish(ctx, subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []string{jetstream.MsgRollupAll, jetstream.MsgRollupSubject} {
			msg := &nats.Msg{Subject: subject, Data: []byte("{}"), Header: nats.Header{jetstream.MsgRollup: {kind}}}
			if _, err := js.PublishMsg(ctx, msg); err == nil {
				t.Errorf("%s took a rollup of %q", stream, kind)
			}
		}
		st, err := js.Stream(ctx, stream)
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Purge(ctx); err == nil {
			t.Errorf("%s was purged", stream)
		}
		if err := st.Purge(ctx, jetstream.WithPurgeSubject(subject)); err == nil {
			t.Errorf("subject %s was purged", subject)
		}
		if _, err := st.GetLastMsgForSubject(ctx, subject); err != nil {
			t.Errorf("message on %s: %v", subject, err)
		}
	}
}

// A stream that discards old messages would take the new intent and drop another one.
func TestAFullStreamRefusesAndKeepsWhatItHas(t *testing.T) {
	s := bustest.Start(t)
	nc, js := s.Connect("test")
	ctx := bustest.Context(t)
	if _, err := bus.Bootstrap(ctx, js, bus.Names{}, bus.BootstrapOptions{MaxBytes: 256 << 10}); err != nil {
		t.Fatal(err)
	}
	f, err := bus.Open(ctx, nc, js, bus.Names{}, "", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	n := f.Names()
	l := bustest.Lead(t, f, "a")
	doc := make([]byte, 16<<10)
	stored := 0
	for ; ; stored++ {
		err := l.Commit(ctx, []bus.Write{{Subject: n.Ledger("proxy", fmt.Sprint("p", stored)), Data: doc}})
		if errors.Is(err, bus.ErrStreamFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	used, err := f.Usage(ctx, n.Assignments())
	if err != nil || used < 0.8 || used > 1 {
		t.Errorf("usage of a full stream: got %v, %v", used, err)
	}
	for i := range stored {
		if st, _ := js.Stream(ctx, n.Assignments()); st != nil {
			if _, err := st.GetLastMsgForSubject(ctx, n.Ledger("proxy", fmt.Sprint("p", i))); err != nil {
				t.Fatalf("entry %d: %v", i, err)
			}
		}
	}
	// Past the alarm intents are refused, but those that make room.
	_, err = f.PublishIntent(ctx, n.IntentProxy("p"), []byte(`{"name":"p","desired":"running"}`))
	if !errors.Is(err, bus.ErrStreamFull) {
		t.Errorf("intent: got %v, want ErrStreamFull", err)
	}
	if _, err = f.PublishIntent(ctx, n.IntentProxy("p"), []byte(`{"name":"p","desired":"absent"}`)); err != nil {
		t.Errorf("intent of absence: %v", err)
	}
}

func TestUsageCountsConsumersToo(t *testing.T) {
	s := bustest.Start(t)
	nc, js := s.Connect("test")
	ctx := bustest.Context(t)
	if _, err := bus.Bootstrap(ctx, js, bus.Names{}, bus.BootstrapOptions{MaxBytes: bustest.MaxBytes, MaxHosts: 1}); err != nil {
		t.Fatal(err)
	}
	f, err := bus.Open(ctx, nc, js, bus.Names{}, "", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if err := f.AdmitHost(ctx, fmt.Sprint("h", i), bus.Admission{}); err != nil {
			t.Fatal(err)
		}
	}
	if used, err := f.Usage(ctx, f.Names().Assignments()); err != nil || used < 0.4 {
		t.Errorf("usage with 50 of 101 consumers: got %v, %v", used, err)
	}
}

func TestAnEventIsStoredOnceHoweverOftenItIsRepeated(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	ctx := bustest.Context(t)
	n := f.Names()
	same := bus.EventWrite{Subject: n.EventProxy("p1"), ID: "same", Event: bus.Event{Type: bus.TypeEvent, Reason: "Placed"}}
	other := bus.EventWrite{Subject: n.EventProxy("p1"), ID: "other", Event: bus.Event{Type: bus.TypeEvent, Reason: "Running"}}
	for _, events := range [][]bus.EventWrite{{same}, {same, same}, {same, other}} {
		if err := f.PublishEvents(ctx, events); err != nil {
			t.Fatal(err)
		}
	}
	st, err := js.Stream(ctx, n.Events())
	if err != nil {
		t.Fatal(err)
	}
	if got := st.CachedInfo().State.Msgs; got != 2 {
		t.Errorf("%d events stored, want 2", got)
	}
}
