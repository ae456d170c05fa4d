package core

import (
	"slices"

	"proxyfleet/internal/bus"
)

// decision is what one reconciliation wants to be stored.
type decision struct {
	p       *proxy
	next    bus.Ledger
	changed bool // next differs from what is stored
	assigns []assigned
}

type assigned struct {
	host string
	doc  bus.Assignment
}

// reconcile brings what is decided for a proxy in line with what is known, in one batch at
// most, and shows it in the inventory.
func (m *Model) reconcile(p *proxy) {
	d := &decision{p: p, next: p.ledger}
	d.next.Retired = slices.Clone(p.ledger.Retired)
	d.next.Refused = slices.Clone(p.ledger.Refused)
	p.wait = ""
	delete(m.waiting, p)
	m.accept(d)
	m.followRemoved(d)
	m.followHost(d)
	m.followRetired(d)
	m.fulfil(d)
	m.guard(d)
	m.conclude(d)
	m.noteMember(p)
	m.show(p)
}

// accept takes the newest intent into the ledger.
func (m *Model) accept(d *decision) {
	p, in := d.p, &d.p.intent
	p.held = ""
	delete(m.held, p)
	if m.pooled(d) || in.doc == nil || d.next.Pool == "" && in.seq <= d.next.IntentSeq || m.doubts(in.seq, p.stored) {
		return
	}
	doc := in.doc
	if doc.Desired == bus.DesiredAbsent {
		if !p.stored {
			return // nothing of that name was ever decided
		}
		doc = &bus.Intent{Type: doc.Type, Name: doc.Name, Desired: doc.Desired} // keep no secret of what goes
	} else if m.full != "" {
		p.held = m.full
		m.held[p] = true
		return
	}
	d.take(doc, in.seq, "")
}

// take has the ledger entry accept a document, of a pool or of the proxy's own.
func (d *decision) take(doc *bus.Intent, seq uint64, pool string) {
	n := &d.next
	n.Accepted, n.IntentSeq, n.Refused, n.Conflicts = doc, seq, nil, 0
	if n.Pool != pool {
		n.Pool, n.Pinned, n.Rotate = pool, false, false
	}
	d.changed = true
}

// pooled takes what its pool decided for a member, and reports whether the name is a
// member's: then an intent of its own has no say.
func (m *Model) pooled(d *decision) bool {
	p := d.p
	if o := p.order; o != nil {
		p.order, p.told = nil, *o
		d.take(o.doc, o.seq, o.pool)
	}
	p.owned = ""
	if !isMember(&d.next) {
		return false
	}
	if p.intent.seq != 0 {
		p.owned = "is taken: " + p.name + " is a member of pool " + d.next.Pool
		if p.toldOwned != p.intent.seq {
			p.toldOwned = p.intent.seq
			m.sayProxy(p, "IntentRejected", bus.Event{Cause: "intent", Field: "name", Seq: p.intent.seq, Message: p.owned + "; the pool's document says what it should be"})
		}
	}
	return true
}

// followHost rewrites what is bound to a host name that has another host id now.
func (m *Model) followHost(d *decision) {
	idOf := func(name, id string) string {
		if h := m.hosts[name]; h != nil && h.id != "" {
			return h.id
		}
		return id
	}
	if d.next.UID != "" {
		if id := idOf(d.next.Host, d.next.HostID); id != d.next.HostID {
			d.next.HostID, d.changed = id, true
			m.assign(d)
		}
	}
	for i := range d.next.Retired {
		r := &d.next.Retired[i]
		if id := idOf(r.Host, r.HostID); !r.Gone && !r.Stranded && id != r.HostID {
			r.HostID, d.changed = id, true
			m.bury(d, *r)
		}
	}
}

// followRetired notes which retired uids are gone, buries again what came back, and
// forgets what was gone for long.
func (m *Model) followRetired(d *decision) {
	for i := range d.next.Retired {
		r := &d.next.Retired[i]
		b := m.binding(r.Host, r.UID)
		if b == nil || b.state == nil {
			continue
		}
		isGone := b.state.Phase == bus.PhaseGone
		switch {
		case isGone && !r.Gone:
			r.Gone, r.Since, r.Shape, d.changed = true, m.now, nil, true
			m.sayProxy(d.p, "Gone", bus.Event{Cause: "agent", Host: r.Host, UID: r.UID, Message: "nothing of it is left on host " + r.Host})
		case !isGone && r.Gone && m.frozen == "":
			m.exhume(d, r)
		}
	}
	before := len(d.next.Retired)
	surplus := before - maxRetired
	d.next.Retired = slices.DeleteFunc(d.next.Retired, func(r bus.Retired) bool {
		old := r.Gone && surplus > 0
		if old {
			surplus--
		}
		return old || m.expired(r)
	})
	d.changed = d.changed || len(d.next.Retired) != before
}

// maxRetired bounds what the ledger remembers of one name, so that an entry stays small
// however often a proxy is replaced. The oldest that are gone are forgotten first.
const maxRetired = 256

// exhume buries again what was gone and is there nonetheless.
func (m *Model) exhume(d *decision, r *bus.Retired) {
	r.Gone, r.Since, d.changed = false, m.now, true
	m.bury(d, *r)
	m.sayProxy(d.p, "CameBack", bus.Event{Cause: "leader", Host: r.Host, UID: r.UID, Message: "it was gone and is there again; it is deleted once more"})
}

// fulfil brings the binding in line with the accepted intent.
func (m *Model) fulfil(d *decision) {
	want := d.next.Accepted
	switch {
	case want == nil:
	case want.Desired == bus.DesiredAbsent:
		m.remove(d)
	case d.next.UID == "":
		m.place(d)
	case m.forgotten(d):
	case m.leave(d):
	case d.next.Applied < d.next.IntentSeq:
		m.change(d)
	default:
		m.mend(d)
	}
}

func (m *Model) remove(d *decision) {
	if d.next.UID == "" {
		return
	}
	if m.frozen != "" {
		d.p.wait = m.frozen
		return
	}
	host, uid := d.next.Host, d.next.UID
	m.unbind(d)
	m.sayProxy(d.p, "Deleting", bus.Event{Cause: d.p.told.reason(), Host: host, UID: uid, Seq: d.next.IntentSeq, Message: "it is removed from host " + host + because(d.p.told.why)})
}

// conclude stores the decision and joins it to the model.
func (m *Model) conclude(d *decision) {
	p := d.p
	if d.changed {
		p.ledger = d.next
	}
	switch {
	case p.stored && m.empty(&p.ledger) && p.ledgerSeq != 0 && p.echoes.settled():
		m.do(ForgetLedger{bus.Msg{Subject: m.cfg.Names.Ledger("proxy", p.name), Seq: p.ledgerSeq}})
		p.stored, p.ledgerSeq, p.echoes, p.ledger = false, 0, echoes{}, emptyLedger(p.name)
	case d.changed || len(d.assigns) > 0:
		m.commitLedger(p, d.assigns)
	}
	m.count(p)
	for _, r := range p.ledger.Retired {
		if r.Gone {
			m.finish(r)
		}
	}
}

// empty reports whether a ledger entry says nothing that anybody needs.
func (m *Model) empty(l *bus.Ledger) bool {
	return l.UID == "" && len(l.Retired) == 0 && (l.Accepted == nil || l.Accepted.Desired == bus.DesiredAbsent)
}

// commitLedger stores a proxy's ledger entry with assignments, as one batch.
func (m *Model) commitLedger(p *proxy, assigns []assigned) {
	names := m.cfg.Names
	data := bus.Encode(p.ledger)
	p.echoes.sent(data)
	p.stored = true
	writes := []bus.Write{{Subject: names.Ledger("proxy", p.name), Data: data}}
	for _, a := range assigns {
		b := m.bind(a.host, a.doc.Proxy, a.doc.UID)
		doc := a.doc
		data := bus.Encode(doc)
		b.assign, b.assignSeq = &doc, 0
		b.echoes.sent(data)
		writes = append(writes, bus.Write{Subject: names.Assign(a.host, doc.Proxy, doc.UID), Data: data})
	}
	m.do(Commit{Writes: writes, Trace: p.trace})
}

// count makes the hosts count what the ledger entry binds.
func (m *Model) count(p *proxy) {
	m.noteKeeper(p)
	if p.ledger.UID != "" && p.ledger.Shape != nil {
		m.take(m.bind(p.ledger.Host, p.name, p.ledger.UID), *p.ledger.Shape)
	}
	for _, r := range p.ledger.Retired {
		switch b := m.binding(r.Host, r.UID); {
		case (r.Gone || r.Abandoned) && b != nil:
			m.take(b, bus.Capacity{})
		case !r.Gone && !r.Stranded && r.Shape != nil:
			m.take(m.bind(r.Host, p.name, r.UID), *r.Shape)
		}
	}
}

// finish retires what is stored of a uid that is gone, once its tombstone came back.
func (m *Model) finish(r bus.Retired) {
	b := m.binding(r.Host, r.UID)
	if b == nil || b.assign == nil && b.state == nil {
		return
	}
	if b.state != nil && b.state.Phase != bus.PhaseGone || b.assign != nil && (b.assignSeq == 0 || !b.echoes.settled()) {
		return
	}
	m.retire(b)
}

// join takes a loaded ledger entry into the hosts' accounts.
func (m *Model) join(p *proxy) {
	p.verify = true
	m.count(p)
}
