package fleettest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
)

// Host is a simulated agent. What it is told to make exists at once.
type Host struct {
	name string
	link *bus.HostLink

	mu      sync.Mutex // guards the fields that follow
	counter uint64
	high    uint64            // highest sequence that was taken
	newest  map[string]uint64 // sequence by uid
	live    map[string]bus.Assignment
	states  map[string]bus.State // newest, of all but those that are gone
}

// StartHost runs a host on link until the test ends. It offers room without bounds.
func StartHost(t testing.TB, link *bus.HostLink, name, zone string) *Host {
	h := &Host{name: name, link: link, newest: map[string]uint64{}, live: map[string]bus.Assignment{}, states: map[string]bus.State{}}
	link.PutHost(bus.Host{
		Type: bus.TypeHost, HostID: h.id(), Session: 1, Counter: 1, Backend: "sim", Zone: zone,
		Offer: bus.Offer{Capacity: bus.Capacity{VCPUs: -1, MemoryMiB: -1, DiskGiB: -1, Slots: -1}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = link.Assignments(ctx, h.take) })
	wg.Go(func() { h.beats(ctx) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return h
}

func (h *Host) id() string { return h.name + "-id" }

func (h *Host) take(ds []bus.Delivery) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range ds {
		h.high = max(h.high, d.Seq)
		if d.Doc == nil || d.Doc.HostID != h.id() || d.Seq < h.newest[d.UID] {
			continue
		}
		h.newest[d.UID] = d.Seq
		h.counter++
		s := bus.State{Type: bus.TypeState, HostID: h.id(), Session: 1, Counter: h.counter, Proxy: d.Proxy, UID: d.UID,
			Generation: d.Doc.Generation, Phase: bus.PhaseRunning,
			Addresses: []bus.Address{{Address: "192.0.2.1", Family: "ipv4", Port: 3128}}}
		if d.Doc.Tombstone() {
			s.Phase, s.Addresses = bus.PhaseGone, nil
			delete(h.live, d.UID)
			delete(h.states, d.UID)
		} else {
			h.live[d.UID], h.states[d.UID] = *d.Doc, s
		}
		h.link.PutState(s, nats.Header{})
	}
	return nil
}

// beats as an agent does, with a digest by which a state that was lost is noticed.
func (h *Host) beats(ctx context.Context) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		inst, _ := h.link.Consumer()
		h.mu.Lock()
		var states []bus.State
		for _, s := range h.states {
			states = append(states, s)
		}
		b := bus.Beat{Type: bus.TypeBeat, HostID: h.id(), Session: 1, Incarnation: inst.Incarnation, Seq: h.high,
			Digest: bus.Digest(states), NoConsumer: h.link.NoConsumer()}
		h.mu.Unlock()
		_ = h.link.Beat(b) // lost while disconnected
	}
}

const beatEvery = 2 * time.Second

// Live are the uids of a host's instances, by proxy.
func (h *Host) Live() map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	live := map[string][]string{}
	for uid, a := range h.live {
		live[a.Proxy] = append(live[a.Proxy], uid)
		slices.Sort(live[a.Proxy])
	}
	return live
}
