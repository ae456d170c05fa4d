package core

import (
	"cmp"
	"slices"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

// adopt binds a proxy to something that is there already and that the ledger did not know,
// or says why it cannot be.
func (m *Model) adopt(p *proxy, s *Stranding, cause string) (why string) {
	d := m.reopen(p)
	if why := m.adoptInto(d, s, cause); why != "" {
		return why
	}
	m.conclude(d)
	m.mark(p)
	return ""
}

// adoptInto makes an adoption part of a decision. What the thing was made of is not known:
// it counts as what the intent asks for.
func (m *Model) adoptInto(d *decision, s *Stranding, cause string) (why string) {
	h := m.hosts[s.Host]
	if h == nil || h.doc == nil || !h.reachable {
		return "host " + s.Host + " is silent"
	}
	spec := d.next.Accepted.Spec
	if w := placement.Matches(h.offer, spec.Placement); !w.Fits() {
		return "host " + s.Host + " is not one that the intent asks for: " + w.String()
	}
	b, w := placement.Bind(h.offer, spec)
	if !w.Fits() {
		return "host " + s.Host + ": " + w.String()
	}
	n := &d.next
	n.UID, n.Host, n.HostID, n.Generation = s.UID, h.name, h.id, m.lastGeneration(s)+1
	n.Bound, n.Defaulted, n.Shape = &b.Spec, b.Defaulted, &b.Shape
	m.apply(d)
	m.sayProxy(d.p, "Adopted", bus.Event{Cause: cause, Host: h.name, UID: s.UID, Seq: n.IntentSeq, Message: "what was found on host " + h.name + " is taken as it"})
	m.forgetStray(s)
	return ""
}

// reopen begins a decision beside a reconciliation.
func (m *Model) reopen(p *proxy) *decision {
	d := &decision{p: p, next: p.ledger}
	d.next.Retired = slices.Clone(p.ledger.Retired)
	return d
}

// lastGeneration is the highest that is known of something that the ledger does not know.
func (m *Model) lastGeneration(s *Stranding) uint64 {
	var g uint64
	if b := m.binding(s.Host, s.UID); b != nil {
		if b.state != nil {
			g = b.state.Generation
		}
		if b.assign != nil {
			g = max(g, b.assign.Generation)
		}
	}
	return g
}

// forgetStray takes something that the ledger knows now from those that it does not.
func (m *Model) forgetStray(s *Stranding) {
	h := m.hosts[s.Host]
	delete(h.strays, s.UID)
	delete(h.told, s.UID)
	h.unclaimed = slices.DeleteFunc(h.unclaimed, func(u bus.Unclaimed) bool { return u.UID == s.UID })
	m.touch(h)
}

// freed lets go on who waits because of a stranded thing.
func (m *Model) freed(s *Stranding) {
	m.touch(m.hosts[s.Host])
	m.mark(m.proxies[s.Proxy])
}

// squatter is something that a host has under the name of a proxy and that the ledger does
// not know; nil when there is none. Beside it nothing new is made: it may well be the proxy.
func (m *Model) squatter(name string) *Stranding {
	for _, h := range sorted(m.hosts) {
		for _, u := range m.unknown(h) {
			if b := h.strays[u.UID]; u.Proxy == name && (b == nil || b.state != nil) && (u.Kind == "instance" || u.Kind == "binding") {
				return &Stranding{Host: h.name, HostID: h.id, Proxy: name, UID: u.UID, Kind: u.Kind}
			}
		}
	}
	return nil
}

func cmpPairs(a1, b1, a2, b2 string) int { return cmp.Or(cmp.Compare(a1, b1), cmp.Compare(a2, b2)) }
