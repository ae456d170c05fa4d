package core

import (
	"cmp"
	"fmt"

	"proxyfleet/internal/bus"
)

// sayProxy publishes an event about a proxy. Its id is made of what it is about, so a
// second leader that comes to the same conclusion says nothing new.
func (m *Model) sayProxy(p *proxy, reason string, e bus.Event) {
	e.Proxy, e.Pool = p.name, cmp.Or(p.ledger.Pool, p.told.pool)
	m.say(m.cfg.Names.EventProxy(p.name), reason, e, fmt.Sprintf("%s/%s/%s/%s/%d/%d", reason, p.name, e.UID, e.Field, e.Seq, p.ledger.Generation))
}

// sayHost publishes an event about a host. Hosts come and go, so time is part of its id.
func (m *Model) sayHost(h *host, reason string, e bus.Event) {
	e.Host = h.name
	m.say(m.cfg.Names.EventHost(h.name), reason, e, fmt.Sprintf("%s/%s/%s/%d", reason, h.name, e.UID, m.now.UnixNano()))
}

func (m *Model) sayFleet(reason, message string, seq uint64) {
	m.say(m.cfg.Names.EventFleet(), reason, bus.Event{Cause: "leader", Message: message, Seq: seq}, fmt.Sprintf("%s/%d/%d", reason, seq, m.now.UnixNano()))
}

func (m *Model) say(subject, reason string, e bus.Event, id string) {
	e.Type, e.Time, e.Reason = bus.TypeEvent, m.now, reason
	m.do(Say{Subject: subject, ID: id, Doc: e})
}
