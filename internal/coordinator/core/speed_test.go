package core

import (
	"encoding/binary"
	"fmt"
	"testing"

	"proxyfleet/internal/bus"
)

// BenchmarkTenThousand measures what one event costs in a fleet of 10,000 proxies on 50
// hosts: it must not grow with the fleet.
func BenchmarkTenThousand(b *testing.B) {
	w := newWorld()
	events := []Event{CaughtUp{}}
	for i := range 50 {
		h := w.host("")
		h.HostID = fmt.Sprint("id-", i)
		h.Offer.Capacity = bus.Capacity{VCPUs: -1, MemoryMiB: -1, DiskGiB: -1, Slots: -1}
		events = append(events, w.publishHost(fmt.Sprintf("h%d", i), h))
	}
	w.settle(events...)
	events = nil
	doc := func(i int) []byte {
		return fmt.Appendf(nil, `{"name":"p%d","spec":{"allowFrom":["10.0.0.0/8"],"auth":{"username":"u","password":"p%d"}}}`, i%10000, i)
	}
	for i := range 10000 {
		events = append(events, Message(w.store(w.cfg.Names.IntentProxy(fmt.Sprintf("p%d", i)), doc(i))))
	}
	b.Run("all at once", func(b *testing.B) {
		for b.Loop() {
			m := New(w.cfg)
			m.Step(Input{Now: w.now, Events: append([]Event{CaughtUp{}}, w.publishHost("h0", w.host("h0")))})
			m.Step(Input{Now: w.now, Events: events})
		}
	})
	w.settle(events...)
	b.Run("one intent", func(b *testing.B) {
		seq := uint64(1 << 20)
		for b.Loop() {
			seq++
			in := Input{Now: w.now, Events: []Event{Message{Subject: w.cfg.Names.IntentProxy(fmt.Sprintf("p%d", seq%10000)), Seq: seq, Data: doc(int(seq))}}}
			binary.BigEndian.PutUint64(in.Seed[:], seq)
			if len(w.model.Step(in)) == 0 {
				b.Fatal("nothing decided")
			}
		}
	})
}
