package core

import (
	"fmt"
	"slices"
	"time"

	"proxyfleet/internal/bus"
)

// runs are the starts of a host's agent that beats named. A restart leaves one behind for
// ever; two agents with copies of one state directory take turns.
type runs struct {
	now      string
	past     []string // newest last
	returned time.Time
	times    int       // that one came back, each within [Config.Silence] of the one before
	cloned   time.Time // when it was seen last that there are two; zero: there is one
}

const maxPastRuns = 4

// noteRun notices that two agents beat with one host id. It cannot tell which is the right
// one, and stops neither: the host takes nothing new until one of them is gone.
func (m *Model) noteRun(h *host, run string) {
	r := &h.runs
	if run == "" || run == r.now {
		return
	}
	back := slices.Contains(r.past, run)
	r.past = slices.DeleteFunc(r.past, func(p string) bool { return p == run })
	if r.now != "" {
		r.past = append(r.past, r.now)
	}
	r.past = r.past[max(0, len(r.past)-maxPastRuns):]
	r.now = run
	if !back {
		return
	}
	if m.now.Sub(r.returned) > m.cfg.Silence {
		r.times = 0
	}
	r.returned = m.now
	if r.times++; r.times < 3 {
		return // a beat of before a restart may come late
	}
	if r.cloned.IsZero() {
		text := fmt.Sprintf("two agents beat as host %s with host id %s: a state directory was copied. Stop one of them, and give it a directory of its own", h.name, h.id)
		m.do(Alarm{"HostCloned", text})
		m.sayHost(h, "HostCloned", bus.Event{Cause: "host", Message: text})
		m.touch(h)
	}
	r.cloned = m.now
}

// tickRuns opens a host again once only one agent beats.
func (m *Model) tickRuns(h *host) {
	r := &h.runs
	if r.cloned.IsZero() || m.now.Sub(r.cloned) < m.cfg.Silence {
		return
	}
	r.cloned, r.times = time.Time{}, 0
	m.sayHost(h, "HostAlone", bus.Event{Cause: "host", Message: "one agent beats again"})
	m.restartSessions(h)
	m.touch(h)
}

// restartSessions forgets what of a host is newer than what: of two agents with copies of
// one state directory, the one that is left may be that of the lower session. It is asked
// for all that it has to say, and what it says counts.
func (m *Model) restartSessions(h *host) {
	h.session = 0
	if h.doc != nil {
		doc := *h.doc
		doc.Session = 0
		h.doc = &doc
	}
	for _, b := range h.bindings {
		if b.state != nil {
			s := *b.state
			s.Session = 0
			b.state = &s
		}
	}
	m.askAll(h, h.id)
}

// named returns the host of another name that has an id, nil when there is none.
func (m *Model) named(id string, but *host) *host {
	for _, h := range m.hosts {
		if h.id == id && h != but {
			return h
		}
	}
	return nil
}

// meetRenamed takes in the document of a host that is known by another name. It is the same
// machine with the same instances, so what is bound to the old name follows, with its uids;
// but not while somebody beats by the old name, for then it is a copy.
func (m *Model) meetRenamed(h, old *host, doc *bus.Host) {
	news := h.rival == nil || h.rival.HostID != doc.HostID
	var why string
	switch {
	case old.orders.Removed != nil:
		why = m.removedText(old)
	case old.reachable:
		why = fmt.Sprintf("host id %s is host %s, which still beats; it is renamed once that is silent", doc.HostID, old.name)
	case h.id != "" && h.reachable:
		why = fmt.Sprintf("the name %s belongs to host id %s as long as that one lives", h.name, h.id)
	default:
		m.rename(old, h, doc)
		return
	}
	h.rival = doc
	if news {
		m.sayHost(h, "HostRefused", bus.Event{Cause: "host", Message: why})
	}
	if h.id != "" { // its consumer is another's, and so was its document
		h.replaced = h.orders.Removed == nil
		return
	}
	h.word = why
	m.do(AdmitHost{h.name, m.admission(h)})
}

// rename moves everything from a host's old name to its new one.
func (m *Model) rename(old, h *host, doc *bus.Host) {
	for _, p := range sorted(m.proxies) {
		m.rebind(p, old, h, doc.HostID)
	}
	m.admit(h, doc)
	h.orders = old.orders
	m.commitHost(h)
	m.sayHost(h, "HostRenamed", bus.Event{Cause: "host", Message: fmt.Sprintf("it was host %s until now; what is bound to that name is bound to it", old.name)})
	m.dismiss(old)
	if old.ledgerSeq != 0 {
		m.do(ForgetLedger{bus.Msg{Subject: m.cfg.Names.Ledger("host", old.name), Seq: old.ledgerSeq}})
	}
	delete(m.offers, old.name)
	delete(m.hosts, old.name)
	old.id = "" // it is marked to be shown
	m.unput(Hosts, old.name)
}

// rebind has what the ledger entry of a proxy says of one host name said of another.
func (m *Model) rebind(p *proxy, old, h *host, id string) {
	d := m.reopen(p)
	if d.next.UID != "" && d.next.Host == old.name {
		d.next.Host, d.next.HostID = h.name, id
		if b := old.bindings[d.next.UID]; b != nil {
			m.bind(h.name, p.name, b.uid).inherit(b)
		}
		m.assign(d)
	}
	for i := range d.next.Retired {
		r := &d.next.Retired[i]
		if r.Host != old.name {
			continue
		}
		r.Host, r.HostID, d.changed = h.name, id, true
		if !r.Gone {
			m.bury(d, *r)
		}
	}
	if !d.changed {
		return
	}
	delete(h.strays, d.next.UID)
	for _, r := range d.next.Retired {
		delete(h.strays, r.UID)
	}
	m.conclude(d)
	m.mark(p)
}

// inherit takes over what was known by a host's old name, until the host has said it by
// the new one.
func (b *binding) inherit(from *binding) {
	if b.state == nil {
		b.state = from.state
	}
}
