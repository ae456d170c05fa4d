package coordinator_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// BenchmarkIntentToRunning measures one intent at a time in a fleet that is otherwise
// idle: from its publication to the state that says Running, over coordinator and a host
// that answers at once.
func BenchmarkIntentToRunning(b *testing.B) {
	r := newRig(b)
	c, _ := r.coordinator("c1")
	r.leading(c)
	r.host("kvm-1")
	r.publish("warm", intent("warm"))
	r.record("warm", phase(bus.PhaseRunning))
	states := make(chan *nats.Msg, 1024)
	sub, err := r.nc.ChanSubscribe(bus.Names{}.AllStates(), states)
	if err != nil {
		b.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the end of the test
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("p%d", i)
		began := time.Now()
		if err := r.nc.Publish(bus.Names{}.IntentProxy(name), intent(name)); err != nil {
			b.Fatal(err)
		}
		for at, _ := (bus.Names{}).Parse((<-states).Subject); at.Proxy != name; at, _ = (bus.Names{}).Parse((<-states).Subject) {
		}
		took = append(took, time.Since(began))
		time.Sleep(5 * time.Millisecond) // idle again
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// TestAFloodOfIntents has many intents at once, and takes over after it. (That 10,000 are
// no more work for each is measured in the core.)
func TestAFloodOfIntents(t *testing.T) {
	const n = 1000
	r := newRig(t)
	c, stop := r.coordinator("c1")
	r.leading(c)
	r.host("kvm-1")
	began := time.Now()
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		if _, err := r.js.PublishAsync(bus.Names{}.IntentProxy(name), intent(name)); err != nil {
			t.Fatal(err)
		}
	}
	last := fmt.Sprintf("p%d", n-1)
	r.record(last, phase(bus.PhaseRunning))
	bustest.Value(t, r.js, bus.Names{}.Hosts(), "kvm-1", func(h bus.HostRecord) error {
		if h.Bound.Slots != n {
			return fmt.Errorf("%d of %d are bound", h.Bound.Slots, n)
		}
		return nil
	})
	t.Logf("%d intents were placed, made and shown within %v", n, time.Since(began))
	stop()
	began = time.Now()
	c2, _ := r.coordinator("c2")
	r.leading(c2)
	t.Logf("another coordinator had read everything after %v", time.Since(began))
}
