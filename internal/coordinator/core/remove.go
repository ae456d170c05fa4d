package core

import (
	"fmt"
	"slices"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// RemoveHost takes a host out of the fleet: what is bound to it is placed elsewhere, and
// everything stored of it ends. What it did not say to be gone is [Stranded] until a person
// abandons it. The host must be drained or silent; Force removes any.
//
// Its id is remembered for as long as anything of it is stranded, 90 days at least. Should
// the same host come back it is refused, and its agent reads why, until somebody welcomes
// it by [Uncordon]; then it finds tombstones. Another host of the name is admitted as a new
// one.
type RemoveHost struct {
	Host   string `json:"host"`
	Force  bool   `json:"force,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Codes of a removal that is refused.
const (
	codeNotDrained = "NotDrained"
	codeFrozen     = "Frozen"
)

func (c RemoveHost) decide(m *Model) (any, *intents.Invalid) {
	h, bad := m.known(c.Host)
	if bad != nil {
		return nil, bad
	}
	if m.frozen != "" {
		return nil, &intents.Invalid{Code: codeFrozen, Field: "host", Message: m.frozen}
	}
	if left := m.drainProgress(h); h.reachable && !c.Force && left.Left+left.Leaving > 0 {
		return nil, &intents.Invalid{Code: codeNotDrained, Field: "host", Message: fmt.Sprintf(
			"%d proxies are bound to host %s, and %d are leaving it; drain it first, or force it and look after what it leaves behind", left.Left, h.name, left.Leaving)}
	}
	m.sayHost(h, "HostRemoved", bus.Event{Cause: "person", Message: "it is no host of the fleet any more" + because(c.Reason)})
	h.orders = bus.HostOrders{Removed: m.ordered(nil, c.Reason)}
	h.lost, h.reachable = time.Time{}, false
	m.commitHost(h)
	delete(m.offers, h.name)
	m.markHost(h)
	m.dismiss(h)
	m.touch(h)
	return removed{Host: h.name, HostID: h.id, Removed: m.now}, nil
}

// removed answers [RemoveHost].
type removed struct {
	Host    string    `json:"host"`
	HostID  string    `json:"hostId"`
	Removed time.Time `json:"removed"`
}

// dismiss ends what is stored of a removed host but its ledger entry.
func (m *Model) dismiss(h *host) {
	for _, b := range sorted(h.bindings) {
		if b.echoes.settled() { // else when it came back
			m.retire(b)
		}
	}
	if h.docSeq != 0 {
		m.do(Retire{State: bus.Msg{Subject: m.cfg.Names.StateHost(h.name), Seq: h.docSeq}})
		h.docSeq = 0
	}
	h.doc, h.rival, h.session = nil, nil, 0
	h.claimant, h.replaced, h.wish = "", false, wish{}
	h.unclaimed, h.menu, h.room, h.full, h.conditions = nil, "", "", nil, nil
	m.do(DismissHost{h.name})
}

// joinRemoved takes in what was loaded of a removed host: what came after its removal.
func (m *Model) joinRemoved(h *host) {
	for _, b := range sorted(h.bindings) {
		m.retire(b)
	}
	if doc := h.rival; doc != nil {
		h.rival = nil
		m.meet(h, doc)
	}
}

// followRemoved parts a proxy from hosts that were removed, and joins it again with what
// waits on one that was welcomed back.
func (m *Model) followRemoved(d *decision) {
	if h := m.hosts[d.next.Host]; d.next.UID != "" && h != nil && h.orders.Removed != nil {
		r := m.part(d)
		r.Stranded = true
		m.sayProxy(d.p, "Stranded", bus.Event{Cause: "person", Host: r.Host, UID: r.UID, Message: "host " + r.Host + " was removed, and with it what ran there"})
	}
	for i := range d.next.Retired {
		r := &d.next.Retired[i]
		h := m.hosts[r.Host]
		isRemoved := h != nil && h.orders.Removed != nil
		switch {
		case r.Gone || r.Stranded == isRemoved:
		case isRemoved:
			r.Stranded, d.changed = true, true
		case h != nil && h.id == r.HostID:
			r.Stranded = false
			m.bury(d, *r)
		}
	}
}

// refuseRemoved answers a removed host that beats: again, or still. Its agent reads the word
// in the metadata of its consumer.
func (m *Model) refuseRemoved(h *host) {
	if h.claimant != h.id {
		m.sayHost(h, "HostRefused", bus.Event{Cause: "host", Message: "host id " + h.id + " beats, but " + m.removedText(h)})
	}
	h.claimant = h.id
	m.do(AdmitHost{h.name, m.admission(h)})
}

func (m *Model) removedText(h *host) string {
	r := h.orders.Removed
	return fmt.Sprintf("host %s was removed at %s%s; uncordon welcomes it back", h.name, r.Since.Format(time.RFC3339), because(r.Reason))
}

// welcome takes a removed host back.
func (m *Model) welcome(h *host) (any, *intents.Invalid) {
	h.orders.Removed, h.claimant = nil, ""
	m.sayHost(h, "HostWelcomed", bus.Event{Cause: "person", Message: "it is a host of the fleet again"})
	for _, p := range sorted(m.proxies) {
		if slices.ContainsFunc(p.ledger.Retired, func(r bus.Retired) bool { return r.Host == h.name && r.Stranded }) {
			m.mark(p)
		}
	}
	doc := h.rival
	if h.rival = nil; doc == nil {
		m.commitHost(h)
		return m.hostRecord(h), nil
	}
	m.admit(h, doc)
	return m.hostRecord(h), nil
}

// pruneHosts forgets hosts that were removed long ago, and left nothing behind.
func (m *Model) pruneHosts() {
	for _, h := range sorted(m.hosts) {
		r := h.orders.Removed
		if r == nil || h.ledgerSeq == 0 || m.now.Sub(r.Since) < m.cfg.Remember || m.strandedOn(h) {
			continue
		}
		m.do(ForgetLedger{bus.Msg{Subject: m.cfg.Names.Ledger("host", h.name), Seq: h.ledgerSeq}})
		delete(m.hosts, h.name)
	}
}

func (m *Model) strandedOn(h *host) bool {
	for _, p := range m.proxies {
		for _, r := range p.ledger.Retired {
			if r.Host == h.name && r.Stranded && !r.Gone {
				return true
			}
		}
	}
	return false
}
