package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator"
)

func TestAnIntentIsAssignedMadeShownAndRemoved(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	h := r.host("kvm-1")
	r.publish("crawl-1", intent("crawl-1"))
	rec := r.record("crawl-1", phase(bus.PhaseRunning))
	if !rec.Accepted || rec.Host != "kvm-1" {
		t.Errorf("got %+v", rec)
	}
	bustest.Value(t, r.js, bus.Names{}.Endpoints(), "_.crawl-1", func(e bus.Endpoint) error {
		if e.UID != rec.UID {
			return fmt.Errorf("got %+v", e)
		}
		return nil
	})
	bustest.Value(t, r.js, bus.Names{}.Hosts(), "kvm-1", func(hr bus.HostRecord) error {
		if hr.Bound.Slots != 1 {
			return fmt.Errorf("got %+v", hr)
		}
		return nil
	})

	r.publish("crawl-1", []byte(`{"name":"crawl-1","desired":"absent"}`))
	bustest.NoKey(t, r.js, bus.Names{}.Proxies(), "crawl-1")
	bustest.NoKey(t, r.js, bus.Names{}.Endpoints(), "_.crawl-1")
	// Nothing is left in the streams but the ledger's memory.
	for _, stream := range []struct{ name, filter string }{
		{bus.Names{}.Assignments(), bus.Names{}.AllAssign()},
		{bus.Names{}.States(), bus.Names{}.StateProxy("kvm-1", "*", "*")},
	} {
		bustest.Ended(t, r.js, stream.name, stream.filter)
	}
	if !h.seen[rec.UID].Tombstone() {
		t.Error("the host saw no tombstone")
	}
}

func TestABadIntentIsShownAndChangesNothing(t *testing.T) {
	r := newRig(t)
	c, stop := r.coordinator("c1")
	h := r.host("kvm-1")
	r.publish("crawl-1", intent("crawl-1"))
	good := r.record("crawl-1", phase(bus.PhaseRunning))
	seq := r.publish("crawl-1", []byte(`{"name":"crawl-1","spec":{"port":"x"}}`))
	bad := r.record("crawl-1", func(rec bus.Record) error {
		if rec.Accepted || rec.IntentSeq != seq {
			return fmt.Errorf("got %+v", rec)
		}
		return nil
	})
	if bad.Field != "spec.port" || bad.Reason == "" || bad.UID != good.UID || bad.Phase != bus.PhaseRunning {
		t.Errorf("got %+v", bad)
	}
	// The event names the field. It stands in a stream of its own.
	s, err := r.js.Stream(bustest.Context(t), bus.Names{}.Events())
	if err != nil {
		t.Fatal(err)
	}
	bustest.Eventually(t, "an event", func() error {
		m, err := s.GetLastMsgForSubject(bustest.Context(t), bus.Names{}.EventProxy("crawl-1"))
		if err != nil {
			return err
		}
		if e, err := bus.Decode[bus.Event](m.Data); err != nil || e.Reason != "IntentRejected" || e.Field != "spec.port" {
			return fmt.Errorf("got %+v, %v", e, err)
		}
		return nil
	})
	// A restart changes nothing either, though the good intent is in the ledger only.
	r.leading(c)
	stop()
	before := h.deliveries()
	c2, _ := r.coordinator("c2")
	r.leading(c2)
	r.publish("other", intent("other"))
	r.record("other", phase(bus.PhaseRunning))
	if again := r.record("crawl-1", func(bus.Record) error { return nil }); again.UID != good.UID || again.Accepted {
		t.Errorf("got %+v", again)
	}
	if got := h.deliveries(); got != before+1 {
		t.Errorf("%d assignments were delivered after the restart, want the new one only", got-before)
	}
}

func TestAnotherCoordinatorTakesOver(t *testing.T) {
	r := newRig(t)
	c1, stop := r.coordinator("c1")
	r.leading(c1)
	c2, _ := r.coordinator("c2")
	r.host("kvm-1")
	for i := range 20 {
		name := fmt.Sprintf("crawl-%d", i)
		r.publish(name, intent(name))
	}
	r.record("crawl-19", phase(bus.PhaseRunning))
	if c2.Role() != coordinator.StandingBy {
		t.Errorf("the second one is %s", c2.Role())
	}
	began := time.Now()
	stop()
	r.leading(c2)
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("a leader that stopped was waited for: %v", took)
	}
	for i := range 20 {
		name := fmt.Sprintf("crawl-%d", i)
		r.publish(name, []byte(`{"name":"`+name+`","desired":"absent"}`))
	}
	for i := range 20 {
		bustest.NoKey(t, r.js, bus.Names{}.Proxies(), fmt.Sprintf("crawl-%d", i))
	}
}

func TestALeaderThatWasReplacedStepsDown(t *testing.T) {
	r := newRig(t)
	c1, _ := r.coordinator("c1")
	r.leading(c1)
	r.host("kvm-1")
	r.publish("a", intent("a"))
	r.record("a", phase(bus.PhaseRunning))
	// Another one takes the fence only, as if our lease had run out unnoticed.
	bustest.Lead(t, r.srv.Open("usurper"), "usurper")
	r.publish("b", intent("b"))
	// c1 is refused, stands by, finds the lease free, and leads again.
	r.record("b", phase(bus.PhaseRunning))
}

func TestBucketsThatWereDeletedAreFilledAgain(t *testing.T) {
	r := newRig(t)
	c, _ := r.coordinator("c1")
	r.leading(c)
	r.host("kvm-1")
	const pool = `{"name":"crawl","size":%d,"template":{"allowFrom":["10.0.0.0/8"]}}`
	r.ask("apply", fmt.Sprintf(pool, 1), nil)
	r.publish("a", intent("a"))
	r.record("a", phase(bus.PhaseRunning))
	r.record("crawl-1", phase(bus.PhaseRunning))
	names := bus.Names{}
	for _, bucket := range []string{names.Proxies(), names.Pools(), names.Hosts(), names.Endpoints()} {
		if err := r.js.DeleteKeyValue(bustest.Context(t), bucket); err != nil {
			t.Fatal(err)
		}
	}
	r.ask("apply", fmt.Sprintf(pool, 2), nil) // what is written next finds out
	for _, name := range []string{"a", "crawl-1", "crawl-2"} {
		r.record(name, phase(bus.PhaseRunning))
	}
	for bucket, key := range map[string]string{names.Pools(): "crawl", names.Hosts(): "kvm-1", names.Endpoints(): "_.a"} {
		bustest.Value(t, r.js, bucket, key, func(map[string]any) error { return nil })
	}
}

// Nothing is written to them that would find out; the one of pools has no key at all.
func TestBucketsThatWereDeletedAreFilledAgainWhereNothingChanges(t *testing.T) {
	r := newRig(t)
	r.audit = 200 * time.Millisecond
	c, _ := r.coordinator("c1")
	r.leading(c)
	r.publish("a", intent("a"))
	r.record("a", phase(bus.PhasePending))
	names := bus.Names{}
	for _, bucket := range []string{names.Proxies(), names.Pools()} {
		if err := r.js.DeleteKeyValue(bustest.Context(t), bucket); err != nil {
			t.Fatal(err)
		}
	}
	r.record("a", phase(bus.PhasePending))
	bustest.Eventually(t, "a bucket of pools", func() error {
		_, err := r.js.KeyValue(bustest.Context(t), names.Pools())
		return err
	})
}

func TestForeignKeysOfTheInventoryAreRemovedAtATakeover(t *testing.T) {
	r := newRig(t)
	c, stop := r.coordinator("c1")
	r.leading(c)
	r.host("kvm-1")
	r.publish("a", intent("a"))
	r.record("a", phase(bus.PhaseRunning))
	stop()
	kv, err := r.js.KeyValue(bustest.Context(t), bus.Names{}.Proxies())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(bustest.Context(t), "nobody", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(bustest.Context(t), "a", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	r.coordinator("c2")
	bustest.NoKey(t, r.js, bus.Names{}.Proxies(), "nobody")
	r.record("a", phase(bus.PhaseRunning))
}

func TestTheServerRestartsUnderACoordinator(t *testing.T) {
	r := newRig(t)
	c, _ := r.coordinator("c1")
	r.leading(c)
	r.host("kvm-1")
	r.publish("a", intent("a"))
	r.record("a", phase(bus.PhaseRunning))
	// As if the server had been killed before it wrote the record down.
	kv, err := r.js.KeyValue(bustest.Context(t), bus.Names{}.Proxies())
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(bustest.Context(t), "a"); err != nil {
		t.Fatal(err)
	}
	r.srv.Restart()
	bustest.Eventually(t, "publish again", func() error {
		_, err := r.js.Publish(bustest.Context(t), bus.Names{}.IntentProxy("b"), intent("b"))
		return err
	})
	r.record("b", phase(bus.PhaseRunning))
	r.record("a", phase(bus.PhaseRunning))
}

func TestTheAPI(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	r.host("kvm-1")

	var bad struct{ Code, Field, Message string }
	if code := r.ask("apply", `{"name":"a","spec":{"prot":1}}`, &bad); code != "UnknownField" || bad.Field != "spec.prot" {
		t.Errorf("got %s, %+v", code, bad)
	}
	var applied coordinator.Applied
	if code := r.ask("apply", string(intent("a")), &applied); code != "" || applied.Seq != 1 {
		t.Errorf("got %s, %+v; a refused document must not be stored", code, applied)
	}
	rec, err := bus.Decode[bus.Record](applied.State)
	if err != nil || !rec.Accepted || rec.IntentSeq != 1 {
		t.Errorf("the answer came before the decision: %+v, %v", rec, err)
	}
	r.record("a", phase(bus.PhaseRunning))
	var got bus.Record
	if code := r.ask("get", "a", &got); code != "" || got.Proxy != "a" {
		t.Errorf("got %s, %+v", code, got)
	}
	if code := r.ask("get", "nobody", nil); code != "NotFound" {
		t.Errorf("got %q", code)
	}
	for _, name := range []string{"b", "c"} {
		r.ask("apply", string(intent(name)), nil)
	}
	var names []string
	for after := ""; ; {
		var page coordinator.Listing
		r.ask("list", fmt.Sprintf(`{"limit":2,"after":%q}`, after), &page)
		for _, item := range page.Items {
			rec, _ := bus.Decode[bus.Record](item)
			names = append(names, rec.Proxy)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("got %v", names)
	}
	var hosts coordinator.Listing
	if r.ask("hosts", "", &hosts); len(hosts.Items) != 1 || !strings.Contains(string(hosts.Items[0]), `"kvm-1"`) {
		t.Errorf("got %s", hosts.Items)
	}
	if code := r.ask("delete", "a", &applied); code != "" {
		t.Errorf("got %q", code)
	}
	bustest.NoKey(t, r.js, bus.Names{}.Proxies(), "a")
	if code := r.ask("delete", "a", nil); code != "NotFound" {
		t.Errorf("got %q", code)
	}
}

func TestTraceContextTravelsFromIntentToAssignment(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	r.host("kvm-1")
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	msg := &nats.Msg{Subject: bus.Names{}.IntentProxy("a"), Data: intent("a"), Header: nats.Header{"traceparent": {parent}}}
	if _, err := r.js.PublishMsg(bustest.Context(t), msg); err != nil {
		t.Fatal(err)
	}
	rec := r.record("a", phase(bus.PhaseRunning))
	s, err := r.js.Stream(bustest.Context(t), bus.Names{}.Assignments())
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(bustest.Context(t), bus.Names{}.Assign("kvm-1", "a", rec.UID))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Header.Get("traceparent"); !strings.HasPrefix(got, parent[:35]) {
		t.Errorf("traceparent %q is not of the trace %s", got, parent)
	}
}

func TestOpenSaysWhatIsMissing(t *testing.T) {
	srv := bustest.Start(t)
	nc, js := srv.Connect("c")
	if _, err := coordinator.Open(bustest.Context(t), nc, js, bus.Names{}, "", bustest.Log(t)); !errors.Is(err, bus.ErrNotBootstrapped) {
		t.Errorf("got %v", err)
	}
	srv.Bootstrap()
	if _, err := coordinator.Open(bustest.Context(t), nc, js, bus.Names{}, bus.NewULID(), bustest.Log(t)); !errors.Is(err, bus.ErrWrongInstallation) {
		t.Errorf("got %v", err)
	}
	srv.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := coordinator.Open(ctx, nc, js, bus.Names{}, "", bustest.Log(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without NATS: got %v, want it to try until the context ends", err)
	}
}
