package core

import (
	"fmt"
	"slices"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

// Codes of errors that hosts report; each is here because something else is done about it.
const (
	codeNoCapacity = "NoCapacity" // the host is full for that shape or port: another host
	codePermanent  = "Permanent"  // this intent cannot be made there: another host, or Failed
	codeConflict   = "Conflict"   // someone else's thing has the instance's name
	codeHostFault  = "HostFault"  // the host's own trouble: nothing moves, nothing new there
)

// maxConflicts is how many new uids a proxy gets because of a Conflict. A new uid means a
// new instance name, so a second conflict is no accident of names.
const maxConflicts = 1

// mend acts on what the host says of a binding that is as it should be, but cannot be made
// there. What runs is left alone, whatever its host reports.
func (m *Model) mend(d *decision) {
	b := m.binding(d.next.Host, d.next.UID)
	if b == nil || b.state == nil || b.state.Error == nil || b.state.Generation != d.next.Generation {
		return
	}
	switch b.state.Phase {
	case bus.PhasePending, bus.PhaseProvisioning, bus.PhaseFailed:
	default:
		return
	}
	req := m.request(d)
	switch b.state.Error.Code {
	case codeNoCapacity:
		if m.beingReplaced(d, b) {
			b.excused = b.state.Counter
		}
		if b.excused == b.state.Counter {
			return // its predecessor had what it needs; the host tries again by itself
		}
		m.noteFull(b, d.next.Bound.Port)
		refuse(req, d.next.Host, "no room: "+b.state.Error.Message)
	case codePermanent:
		m.noteRefusal(d, b)
		req = m.request(d)
	case codeConflict:
		if d.next.Conflicts >= maxConflicts {
			return
		}
		req.Prefer, req.Release = d.next.Host, *d.next.Shape
	default:
		return
	}
	m.relocate(d, b, req)
}

// relocate gives the proxy a new binding where a host fits; else it stays where it is and
// is tried again when a host changes.
func (m *Model) relocate(d *decision, b *binding, req *placement.Request) {
	if m.frozen != "" {
		d.p.wait = m.frozen
		return
	}
	from, code := b.host, b.state.Error.Code
	if !from.reachable {
		return
	}
	conflicts := d.next.Conflicts
	if d.next.Pool != "" && m.makeWay(d, req, from.name+" reported "+code+" ("+b.state.Error.Message+")") {
		if code == codeConflict {
			d.next.Conflicts++
		}
		return
	}
	if d.next.Pool != "" || !m.replace(d, req) {
		m.waitFor(d, placement.Explain(m.offers, req))
		return
	}
	if code == codeConflict {
		d.next.Conflicts = conflicts + 1
	}
	m.sayProxy(d.p, "Moved", bus.Event{Cause: "agent", Host: d.next.Host, UID: d.next.UID, Seq: d.next.IntentSeq,
		Message: fmt.Sprintf("host %s reported %s (%s); tried on host %s", from.name, code, b.state.Error.Message, d.next.Host)})
}

func refuse(req *placement.Request, host, why string) {
	if req.Refused == nil {
		req.Refused = map[string]string{}
	}
	req.Refused[host] = why
}

// beingReplaced reports whether an earlier binding of the same proxy is not gone yet from
// the same host.
func (m *Model) beingReplaced(d *decision, b *binding) bool {
	return slices.ContainsFunc(d.next.Retired, func(r bus.Retired) bool { return r.Host == b.host.name && !r.Gone })
}

// noteRefusal keeps in the ledger, once per uid, that a host cannot run the accepted
// intent, and under which offer.
func (m *Model) noteRefusal(d *decision, b *binding) {
	for _, r := range d.next.Refused {
		if r.UID == b.uid {
			return
		}
	}
	d.next.Refused = slices.DeleteFunc(d.next.Refused, func(r bus.Refused) bool { return r.Host == b.host.name })
	d.next.Refused = append(d.next.Refused, bus.Refused{Host: b.host.name, UID: b.uid, Offer: b.host.menu, Message: b.state.Error.Message})
	d.changed = true
}
