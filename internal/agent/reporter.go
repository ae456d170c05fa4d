package agent

import (
	"context"
	"reflect"
	"sync"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
)

// publisher is the part of [bus.HostLink] that takes what is said.
type publisher interface {
	PutState(bus.State, nats.Header)
	PutHost(bus.Host)
	FlushState(ctx context.Context, proxy, uid string) error
}

// reporter numbers and publishes what the agent says. A counter rises with every document
// of a session, whatever it is about.
type reporter struct {
	link    publisher
	hostID  string
	session uint64

	mu      sync.Mutex // guards the fields that follow, and the order of puts
	counter uint64
	host    bus.Host
}

// state publishes s and returns it as published.
func (r *reporter) state(s bus.State, header nats.Header) bus.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counter++
	s.Type, s.HostID, s.Session, s.Counter = bus.TypeState, r.hostID, r.session, r.counter
	r.link.PutState(s, header)
	return s
}

// change publishes the host document if change changed it.
func (r *reporter) change(change func(*bus.Host)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.host
	change(&h)
	if reflect.DeepEqual(h, r.host) {
		return
	}
	r.host = h
	r.hostLocked()
}

// again publishes the host document whether or not it changed.
func (r *reporter) again() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hostLocked()
}

func (r *reporter) hostLocked() {
	r.counter++
	r.link.PutHost(r.documentLocked())
}

func (r *reporter) documentLocked() bus.Host {
	h := r.host
	h.Type, h.HostID, h.Session, h.Counter = bus.TypeHost, r.hostID, r.session, r.counter
	return h
}

// document is the host document as it is now.
func (r *reporter) document() bus.Host {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.documentLocked()
}

// stored waits until the newest state of a uid was stored.
func (r *reporter) stored(ctx context.Context, proxy, uid string) error {
	return r.link.FlushState(ctx, proxy, uid)
}

// same compares what two states say.
func same(a, b bus.State) bool {
	b.Type, b.HostID, b.Session, b.Counter = a.Type, a.HostID, a.Session, a.Counter
	return reflect.DeepEqual(a, b)
}
