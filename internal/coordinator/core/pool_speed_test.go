package core

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// BenchmarkPool measures what one member's state costs in a pool of 1,000, beside one of
// 10: a pool must not look at all its members because of one.
func BenchmarkPool(b *testing.B) {
	for _, size := range []int{10, 1000} {
		w := worldWithPool(size)
		flip := []bus.Phase{bus.PhaseRunning, bus.PhaseDegraded}
		n, host, uid := 0, w.model.proxies["p-1"].ledger.Host, w.model.proxies["p-1"].ledger.UID
		b.Run(fmt.Sprintf("a state of one of %d", size), func(b *testing.B) {
			for b.Loop() {
				n++
				in := Input{Now: w.now, Events: []Event{w.publishState(host, "p-1", uid, bus.State{Phase: flip[n%2], Addresses: someAddress})}}
				if len(w.model.Step(in)) == 0 {
					b.Fatal("nothing shown")
				}
			}
			w.told = nil
		})
	}
}

// TestOneStateInALargePoolLooksAtFewMembers compares what a state has allocated, which is
// the same on every machine: whoever looks at all members collects them first.
func TestOneStateInALargePoolLooksAtFewMembers(t *testing.T) {
	cost := func(size int, rotates bool) uint64 {
		w := worldWithPool(size)
		if rotates { // every member is due, and the first replacement comes up
			w.now = w.now.Add(time.Second)
			w.settle(Request{Ask: Rotate{Pool: "p"}})
		}
		l := w.model.proxies["p-1"].ledger
		flip := []bus.Phase{bus.PhaseDegraded, bus.PhaseRunning}
		const states = 20
		var events []Event
		for i := range states {
			events = append(events, w.publishState(l.Host, "p-1", l.UID, bus.State{Phase: flip[i%2], Addresses: someAddress}))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, e := range events {
			w.model.Step(Input{Now: w.now, Events: []Event{e}})
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / states
	}
	for _, rotates := range []bool{false, true} {
		if small, large := cost(10, rotates), cost(1000, rotates); large > 2*small {
			t.Errorf("a state takes %d bytes in a pool of 1,000, %d in one of 10 (rotates: %t)", large, small, rotates)
		}
	}
}

var someAddress = []bus.Address{{Address: "192.0.2.1", Family: "ipv4", Port: 3128}}

// worldWithPool is a world with a pool p of so many members on 50 hosts, all of them ready.
func worldWithPool(size int) *world {
	w := newWorld()
	events := []Event{CaughtUp{}}
	for i := range 50 {
		h := w.host("")
		h.HostID = fmt.Sprint("id-", i)
		h.Offer.Capacity = bus.Capacity{VCPUs: -1, MemoryMiB: -1, DiskGiB: -1, Slots: -1}
		events = append(events, w.publishHost(fmt.Sprintf("h%d", i), h))
	}
	w.settle(events...)
	doc := bus.PoolIntent{Name: "p", Size: &size, Template: bus.Spec{AllowFrom: []string{"10.0.0.0/8"}}, Rotation: &bus.Rotation{MaxAge: "24h"}}
	w.settle(Message(w.store(w.cfg.Names.IntentPool("p"), bus.Encode(doc))))
	events = nil
	for subject := range w.stored {
		if at, _ := w.cfg.Names.Parse(subject); at.Kind == "assign" {
			events = append(events, w.publishState(at.Host, at.Proxy, at.UID, bus.State{Phase: bus.PhaseRunning, Addresses: someAddress}))
		}
	}
	w.settle(events...)
	return w
}
