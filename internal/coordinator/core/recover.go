package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// Recover ends a freeze: a person says that these streams, lost, made anew or restored as
// they are, are the right ones. What hosts have and the ledger does not know is taken as
// what the intents ask for, what was decided is written again, and hosts take assignments
// again whatever they had seen. It is answered by [Recovered]; docs/recover.md says what it
// cannot bring back.
type Recover struct {
	Reason string `json:"reason,omitempty"`
}

// Recovered answers [Recover].
type Recovered struct {
	Recovery string      `json:"recovery"` // its ULID; hosts name it in their beats once they accepted it
	Frozen   string      `json:"frozen"`   // what had been the matter
	Adopted  []Stranding `json:"adopted"`  // taken as what their intents ask for
	Left     []Stranding `json:"left"`     // for a person to adopt, resolve or abandon
}

const codeNotFrozen = "NotFrozen"

func (c Recover) decide(m *Model) (any, *intents.Invalid) {
	if m.frozen == "" {
		return nil, &intents.Invalid{Code: codeNotFrozen, Message: "nothing is frozen: recover is for streams that were lost, made anew or restored"}
	}
	out := Recovered{Frozen: m.frozen, Recovery: m.uids.next(m.now), Adopted: []Stranding{}}
	m.recovery, m.frozen = out.Recovery, ""
	m.taken[m.cfg.Installation.Incarnation] = true
	maps.Copy(m.taken, m.heard)
	m.heard = map[string]bool{}
	m.commitFleet()
	m.say(m.cfg.Names.EventFleet(), "Recovered", bus.Event{Cause: "person", Message: "the streams are the right ones" + because(c.Reason) + "; what hosts have is taken up, and what was decided is written again"}, "Recovered/"+m.recovery)
	for _, h := range sorted(m.hosts) {
		if h.id != "" && h.orders.Removed == nil {
			m.do(AdmitHost{h.name, m.admission(h)})
			m.touch(h)
		}
	}
	// The newest binding of a name first: it is the last that was decided.
	found := m.strandings("")
	slices.SortStableFunc(found, func(a, b Stranding) int { return strings.Compare(b.UID, a.UID) })
	for _, s := range found {
		if m.takeUp(&s) {
			out.Adopted = append(out.Adopted, s)
		}
	}
	out.Left = m.strandings("")
	for _, p := range sorted(m.proxies) {
		p.verify = true
		m.mark(p)
	}
	m.markPools()
	return out, nil
}

// takeUp binds a proxy to what a host has, unless the ledger knows a newer binding, and
// reports whether it did.
func (m *Model) takeUp(s *Stranding) bool {
	p := m.proxies[s.Proxy]
	b := m.binding(s.Host, s.UID)
	switch {
	case m.enlist(s, "person"):
		return true
	case p == nil || p.ledger.Accepted == nil || p.ledger.Accepted.Desired == bus.DesiredAbsent,
		p.retired(s.Host, s.UID) != nil,
		s.Kind != "instance" && (b == nil || b.state == nil),
		p.ledger.UID >= s.UID: // ULIDs rise with time
		return false
	}
	d := m.reopen(p)
	if d.next.UID != "" {
		m.unbind(d)
	}
	if m.adoptInto(d, s, "person") != "" {
		return false
	}
	m.conclude(d)
	return true
}

// forgotten handles a binding of which its host says that it was deleted: by a tombstone
// that these streams have forgotten. It is not brought back by itself, only by another word
// of a person. It reports whether there is such a binding.
func (m *Model) forgotten(d *decision) bool {
	b := m.binding(d.next.Host, d.next.UID)
	if b == nil || b.state == nil || b.state.Phase != bus.PhaseGone {
		return false
	}
	if d.next.Applied == d.next.IntentSeq {
		d.p.wait = "host " + b.host.name + " deleted it before these streams were restored; publish its intent again to have it made again, or ask for its absence"
		return true
	}
	m.part(d).Gone = true
	m.place(d)
	return true
}

// freeze stops deletions, moves and placements until a person has looked.
func (m *Model) freeze(why string) {
	if m.frozen != "" {
		return
	}
	m.frozen = bus.FrozenWord + why
	m.commitFleet()
	m.do(Alarm{"Frozen", m.frozen})
	m.sayFleet("Frozen", m.frozen, 0)
	for _, p := range sorted(m.proxies) {
		m.mark(p)
	}
	m.markPools()
	for _, h := range sorted(m.hosts) {
		m.touch(h)
	}
}

// commitFleet stores whether the fleet is frozen, and its last recovery.
func (m *Model) commitFleet() {
	data := bus.Encode(bus.Ledger{Type: bus.TypeLedger, Kind: "fleet", Name: "fleet", Frozen: m.frozen, Recovery: m.recovery,
		Recovers: slices.Sorted(maps.Keys(m.taken)), Heard: slices.Sorted(maps.Keys(m.heard))})
	m.fleetEchoes.sent(data)
	m.do(Commit{Writes: []bus.Write{{Subject: m.cfg.Names.Ledger("fleet", "fleet"), Data: data}}})
}

func (m *Model) onFleetLedger(msg bus.Msg) {
	if m.live {
		if !m.fleetEchoes.back(msg.Data) {
			m.sayFleet("ForeignWrite", "somebody else wrote the ledger entry of the fleet; it is written again as it was decided", msg.Seq)
			m.commitFleet()
		}
		return
	}
	doc, err := bus.Decode[bus.Ledger](msg.Data)
	if err != nil {
		m.do(Alarm{"LedgerUnreadable", fmt.Sprintf("the ledger entry of the fleet at sequence %d cannot be read", msg.Seq)})
		return
	}
	m.frozen, m.recovery, m.fleetEchoes.last = doc.Frozen, doc.Recovery, string(msg.Data)
	m.taken, m.heard = map[string]bool{}, map[string]bool{}
	for _, i := range doc.Recovers {
		m.taken[i] = true
	}
	for _, i := range doc.Heard {
		m.heard[i] = true
	}
}

// hear freezes when a host works for streams that were there before these, and no recovery
// took its incarnation along.
func (m *Model) hear(h *host, incarnation string) {
	if m.foreign(incarnation) {
		m.freeze(fmt.Sprintf("host %s knows these streams as incarnation %s; they are %s now", h.name, incarnation, m.cfg.Installation.Incarnation))
	}
}

// foreign reports whether an incarnation is one that no recovery took along, and notes it
// for the next.
func (m *Model) foreign(incarnation string) bool {
	if incarnation == "" || incarnation == m.cfg.Installation.Incarnation || m.taken[incarnation] {
		return false
	}
	if !m.heard[incarnation] {
		m.heard[incarnation] = true
		if m.frozen != "" {
			m.commitFleet()
		}
	}
	return true
}
