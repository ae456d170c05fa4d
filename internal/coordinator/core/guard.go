package core

import (
	"bytes"
	"fmt"

	"proxyfleet/internal/bus"
)

// guard writes again what is stored otherwise than it was decided: missing, or written by
// somebody else.
func (m *Model) guard(d *decision) {
	if !d.p.verify {
		return
	}
	d.p.verify = false
	if d.next.UID != "" {
		m.verify(d, d.next.Host, d.next.UID, m.assignment(&d.next))
	}
	for _, r := range d.next.Retired {
		if !r.Gone && !r.Stranded {
			m.verify(d, r.Host, r.UID, m.tombstone(d.p.name, r))
		}
	}
}

func (m *Model) verify(d *decision, host, uid string, want bus.Assignment) {
	for _, a := range d.assigns {
		if a.host == host && a.doc.UID == uid {
			return // it is written anyway
		}
	}
	b := m.binding(host, uid)
	what := "is missing"
	if b != nil && b.assign != nil {
		if m.foreign(b.assign.Incarnation) {
			m.freeze(fmt.Sprintf("the assignment of uid %s is of incarnation %s", uid, b.assign.Incarnation))
			return
		}
		if same(*b.assign, want) {
			return
		}
		what = "was written by somebody else"
	}
	if m.frozen != "" {
		d.p.wait = m.frozen
		return
	}
	d.write(host, want)
	if b != nil && b.assign != nil && b.assign.Recovery != want.Recovery {
		return // a recovery writes everything again
	}
	m.sayProxy(d.p, "ForeignWrite", bus.Event{Cause: "leader", Host: host, UID: uid,
		Message: "its assignment " + what + "; it is written again as it was decided"})
}

// same compares all but the intent's sequence: an intent that changes nothing is not
// assigned anew.
func same(a, b bus.Assignment) bool {
	a.IntentSeq, b.IntentSeq = 0, 0
	return bytes.Equal(bus.Encode(a), bus.Encode(b))
}

// noteFault keeps what a state says of its host, while it says so.
func (m *Model) noteFault(b *binding) {
	h := b.host
	if e := b.state; e != nil && e.Error != nil && e.Error.Code == codeHostFault {
		if h.faults[b.uid] != e.Error.Message {
			h.faults[b.uid] = e.Error.Message
			m.touch(h)
		}
		return
	}
	if _, was := h.faults[b.uid]; was {
		delete(h.faults, b.uid)
		m.touch(h)
	}
}
