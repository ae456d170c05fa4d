package core

import (
	"fmt"
	"slices"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

// place looks for a host of a proxy that has none.
func (m *Model) place(d *decision) {
	if s := m.squatter(d.p.name); s != nil && m.recovery != "" && m.frozen == "" && m.adoptInto(d, s, "leader") == "" {
		return // its intent was lost longer than it
	}
	if why := m.unplaceable(d.p); why != "" {
		m.waitFor(d, why)
		return
	}
	if host := m.madeWay(&d.next); d.next.Pool != "" && host != "" {
		d.p.wait = "it is tried again once nothing of it is left on host " + host
		return
	}
	req := m.request(d)
	h, b := placement.Choose(m.offers, req)
	if h == nil {
		m.waitFor(d, placement.Explain(m.offers, req))
		return
	}
	m.bindTo(d, h, b)
	m.sayProxy(d.p, "Placed", bus.Event{Cause: d.p.told.reason(), Host: h.Name, UID: d.next.UID, Seq: d.next.IntentSeq, Message: "placed on host " + h.Name + because(d.p.told.why)})
}

// unplaceable says why a proxy is not placed anywhere, whatever the hosts have left, or
// nothing when it is: what looks new may run already, and be forgotten.
func (m *Model) unplaceable(p *proxy) string {
	if m.frozen != "" {
		return m.frozen
	}
	if s := m.squatter(p.name); s != nil {
		return fmt.Sprintf("host %s has something of this name already that the ledger does not know (uid %s): adopt, resolve or abandon it", s.Host, s.UID)
	}
	return ""
}

func (m *Model) request(d *decision) *placement.Request {
	req := &placement.Request{Spec: d.next.Accepted.Spec}
	for _, r := range d.next.Refused {
		if h := m.hosts[r.Host]; h == nil || h.menu == r.Offer {
			refuse(req, r.Host, r.Message)
		}
	}
	req.Avoid = m.avoid(d)
	m.spread(d, req)
	return req
}

// waitFor keeps the proxy among those that are tried again when a host changes.
func (m *Model) waitFor(d *decision, why string) {
	d.p.wait = why
	m.waiting[d.p] = true
}

// bindTo makes a new binding, with a uid of its own.
func (m *Model) bindTo(d *decision, h *placement.Host, b placement.Binding) {
	n := &d.next
	n.UID = m.uids.next(m.now)
	d.p.fresh = true
	n.Host, n.HostID = h.Name, m.hosts[h.Name].id
	n.Generation = 1
	n.Bound, n.Defaulted, n.Shape = &b.Spec, b.Defaulted, &b.Shape
	m.apply(d)
}

// apply assigns the binding as it is now, as satisfying the accepted intent.
func (m *Model) apply(d *decision) {
	d.next.Applied, d.next.Desired = d.next.IntentSeq, d.next.Accepted.Desired
	m.assign(d)
}

// assign writes the current binding.
func (m *Model) assign(d *decision) {
	d.changed = true
	d.write(d.next.Host, m.assignment(&d.next))
}

func (m *Model) assignment(l *bus.Ledger) bus.Assignment {
	return bus.Assignment{
		Type:         bus.TypeAssignment,
		Installation: m.cfg.Installation.ID,
		Incarnation:  m.cfg.Installation.Incarnation,
		HostID:       l.HostID,
		Proxy:        l.Name,
		UID:          l.UID,
		Generation:   l.Generation,
		IntentSeq:    l.Applied,
		Pool:         l.Pool,
		Desired:      l.Desired,
		Spec:         l.Bound,
		Recovery:     m.recovery,
	}
}

// unbind retires the binding: its tombstone goes into the same batch.
func (m *Model) unbind(d *decision) {
	m.bury(d, *m.part(d))
}

// part retires the binding without a tombstone.
func (m *Model) part(d *decision) *bus.Retired {
	n := &d.next
	r := bus.Retired{UID: n.UID, Host: n.Host, HostID: n.HostID, Since: m.now, Shape: n.Shape, Generation: n.Generation + 1}
	n.Retired = append(n.Retired, r)
	n.UID, n.Host, n.HostID, n.Generation = "", "", "", 0
	n.Bound, n.Defaulted, n.Shape, n.Desired, n.Applied = nil, nil, nil, "", 0
	d.changed = true
	return &n.Retired[len(n.Retired)-1]
}

// bury writes a tombstone.
func (m *Model) bury(d *decision, r bus.Retired) {
	d.changed = true
	d.write(r.Host, m.tombstone(d.p.name, r))
}

func (m *Model) tombstone(proxy string, r bus.Retired) bus.Assignment {
	return bus.Assignment{
		Type:         bus.TypeAssignment,
		Installation: m.cfg.Installation.ID,
		Incarnation:  m.cfg.Installation.Incarnation,
		HostID:       r.HostID,
		Proxy:        proxy,
		UID:          r.UID,
		Generation:   r.Generation,
		Desired:      bus.DesiredAbsent,
		Recovery:     m.recovery,
	}
}

// write puts a document into the batch; a later one for the same uid replaces an earlier.
func (d *decision) write(host string, doc bus.Assignment) {
	d.assigns = slices.DeleteFunc(d.assigns, func(a assigned) bool { return a.host == host && a.doc.UID == doc.UID })
	d.assigns = append(d.assigns, assigned{host, doc})
}

// replace puts a new binding in the place of the current one, where a host fits.
func (m *Model) replace(d *decision, req *placement.Request) bool {
	h, b := placement.Choose(m.offers, req)
	if h == nil {
		return false
	}
	m.unbind(d)
	m.bindTo(d, h, b)
	return true
}
