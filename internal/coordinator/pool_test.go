package coordinator_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// A pool is made, changed to another template and removed, by two coordinators, on a real
// server. From when its members are up, three are ready at any time.
func TestAPoolIsMadeUpdatedTakenOverAndRemoved(t *testing.T) {
	r := newRig(t)
	_, stop := r.coordinator("c1")
	r.host("kvm-1")
	r.host("kvm-2")
	r.publishPool("crawl", `{"name":"crawl","size":3,"template":{"allowFrom":["10.0.0.0/8"]}}`)
	r.pool("crawl", 3)
	for _, member := range []string{"crawl-1", "crawl-2", "crawl-3"} {
		bustest.Value(t, r.js, bus.Names{}.Endpoints(), "crawl."+member, func(e bus.Endpoint) error {
			if e.Pool != "crawl" {
				return fmt.Errorf("got %+v", e)
			}
			return nil
		})
	}
	fewest := r.fewestReady("crawl")

	r.publishPool("crawl", `{"name":"crawl","size":3,"template":{"port":4000,"allowFrom":["10.0.0.0/8"]}}`)
	for _, member := range []string{"crawl-1", "crawl-2", "crawl-3"} {
		bustest.NoKey(t, r.js, bus.Names{}.Proxies(), member)
	}
	r.pool("crawl", 3)
	stop()
	c2, _ := r.coordinator("c2")
	r.leading(c2)
	r.pool("crawl", 3)
	if got := fewest(); got != 3 {
		t.Errorf("the fewest that were ready at a time are %d", got)
	}

	r.publishPool("crawl", `{"name":"crawl","desired":"absent"}`)
	bustest.NoKey(t, r.js, bus.Names{}.Pools(), "crawl")
	for _, end := range []struct{ stream, subject string }{
		{bus.Names{}.Assignments(), bus.Names{}.AllAssign()},
		{bus.Names{}.Assignments(), bus.Names{}.Ledger("pool", "crawl")},
		{bus.Names{}.States(), bus.Names{}.StateProxy("*", "*", "*")},
	} {
		bustest.Ended(t, r.js, end.stream, end.subject)
	}
}

func (r *rig) publishPool(name, doc string) {
	r.t.Helper()
	if _, err := r.js.Publish(bustest.Context(r.t), bus.Names{}.IntentPool(name), []byte(doc)); err != nil {
		r.t.Fatal(err)
	}
}

// pool waits until a pool is as declared, with so many members.
func (r *rig) pool(name string, size int) {
	r.t.Helper()
	bustest.Value(r.t, r.js, bus.Names{}.Pools(), name, func(p bus.PoolRecord) error {
		if !p.Accepted || p.Size != size || p.Ready != size || p.Members != size || p.Updating+p.Leaving != 0 {
			return fmt.Errorf("got %+v", p)
		}
		return nil
	})
}

// fewestReady follows a pool's record until it is asked for the lowest number of ready
// members that was shown.
func (r *rig) fewestReady(name string) func() int {
	r.t.Helper()
	ctx := bustest.Context(r.t)
	kv, err := r.js.KeyValue(ctx, bus.Names{}.Pools())
	if err != nil {
		r.t.Fatal(err)
	}
	w, err := kv.Watch(ctx, name, jetstream.IgnoreDeletes())
	if err != nil {
		r.t.Fatal(err)
	}
	return func() int {
		if err := w.Stop(); err != nil {
			r.t.Error(err)
		}
		lowest := bus.MaxPoolSize
		for e := range w.Updates() {
			var p bus.PoolRecord
			if e != nil && json.Unmarshal(e.Value(), &p) == nil {
				lowest = min(lowest, p.Ready)
			}
		}
		return lowest
	}
}
