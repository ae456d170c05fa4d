package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

// evicted says why a proxy must leave its host although it runs there, or nothing when it
// may stay. A pool's member is replaced first, by its pool; any other proxy has one live
// binding only and goes at once.
func (m *Model) evicted(p *proxy) string {
	h := m.hosts[p.ledger.Host]
	if p.ledger.UID == "" || h == nil || h.orders.Drain == nil || !h.reachable {
		return ""
	}
	return "host " + h.name + " is being drained" + because(h.orders.Drain.Reason)
}

// leave gives a proxy whose host is lost or drained another one, and reports whether that
// is all there is to do about it for now.
func (m *Model) leave(d *decision) bool {
	h := m.hosts[d.next.Host]
	switch {
	case h == nil:
		return false
	case !h.lost.IsZero():
		return m.leaveLost(d, h)
	case d.next.Pool == "" && m.evicted(d.p) != "":
		return m.leaveDrained(d, h)
	case !h.reachable && m.lossHeld != "":
		d.p.wait = m.lossHeld
	}
	return false
}

// leaveLost replaces what a lost host had. A proxy that is to be stopped is not needed.
func (m *Model) leaveLost(d *decision, h *host) bool {
	want := d.next.Accepted
	switch {
	case want.Desired != bus.DesiredRunning:
		return false
	case want.Spec.OnHostLoss == "wait":
		d.p.wait = "host " + h.name + " is silent, and the intent says to wait for it"
		return d.next.Applied == d.next.IntentSeq
	case m.frozen != "":
		d.p.wait = m.frozen
		return true
	}
	m.evict(d, "host", "host "+h.name+" is lost")
	return true
}

func (m *Model) leaveDrained(d *decision, h *host) bool {
	changes := d.next.Applied < d.next.IntentSeq
	switch {
	case m.frozen != "":
		d.p.wait = m.frozen
		return !changes
	case len(h.moving) >= m.cfg.DrainAtOnce:
		d.p.wait = m.evicted(d.p) + "; it moves in its turn"
		return false
	}
	if m.evict(d, "person", m.evicted(d.p)) {
		h.moving[d.p] = true
		return true
	}
	return !changes // what can change in place does
}

// evict moves a proxy to another host, where one fits and it is its turn.
func (m *Model) evict(d *decision, cause, why string) bool {
	req := m.request(d)
	if best, _ := placement.Choose(m.offers, req); best == nil {
		m.waitFor(d, why+"; it fits nowhere else: "+placement.Explain(m.offers, req))
		return false
	}
	if !m.turn(d.p) {
		d.p.wait = why + "; it moves in its turn"
		return false
	}
	m.replace(d, req)
	m.sayProxy(d.p, "Moved", bus.Event{Cause: cause, Host: d.next.Host, UID: d.next.UID, Seq: d.next.IntentSeq,
		Message: why + "; a new instance on host " + d.next.Host + " takes its place"})
	return true
}

// turn reports whether p may move now. Else it is tried again when there are turns.
func (m *Model) turn(p *proxy) bool {
	if m.turns == 0 {
		m.queue[p] = true
		return false
	}
	m.turns--
	delete(m.queue, p)
	return true
}

// tickTurns gives out the turns of the time that has passed, to those first that are
// first by name.
func (m *Model) tickTurns() {
	m.turns = m.cfg.MovesPerTick
	if len(m.queue) == 0 {
		return
	}
	ps := slices.SortedFunc(maps.Keys(m.queue), func(a, b *proxy) int { return cmp.Compare(a.name, b.name) })
	for _, p := range ps[:min(m.turns, len(ps))] {
		delete(m.queue, p)
		m.mark(p)
	}
}

// tickDrain lets the next proxies move, and tells when none is left.
func (m *Model) tickDrain(h *host) {
	if h.orders.Drain == nil {
		return
	}
	for p := range h.moving {
		if !m.onItsWay(p, h) {
			delete(h.moving, p)
		}
	}
	free := m.cfg.DrainAtOnce - len(h.moving)
	for _, b := range sorted(h.bindings) {
		p := m.proxies[b.proxy]
		if free > 0 && p != nil && p.ledger.UID == b.uid && !m.waiting[p] && !m.queue[p] {
			m.mark(p)
			free--
		}
	}
	m.touch(h)
	progress := m.drainProgress(h)
	done := progress.Left == 0 && progress.Leaving == 0
	if done && !h.drained {
		m.sayHost(h, "Drained", bus.Event{Cause: "person", Message: "nothing of ours is left on it"})
	}
	h.drained = done
}

// onItsWay reports whether a proxy that left a host is not up elsewhere yet.
func (m *Model) onItsWay(p *proxy, from *host) bool {
	b := m.binding(p.ledger.Host, p.ledger.UID)
	return b != nil && b.host != from && (b.state == nil || !settled[b.state.Phase])
}

// joinDrains finds those that are on their way from a drained host, by what is stored: a
// takeover in the middle of a drain moves no more at once than the drain may. Rather too
// many are found than too few: one that was up elsewhere and is being made anew counts again.
func (m *Model) joinDrains() {
	for _, p := range m.proxies {
		if p.ledger.Pool != "" {
			continue
		}
		for _, left := range p.ledger.Retired {
			h := m.hosts[left.Host]
			if h != nil && h.orders.Drain != nil && !left.Since.Before(h.orders.Drain.Since) && m.onItsWay(p, h) {
				h.moving[p] = true
			}
		}
	}
}

// settled are the phases in which a new instance is as far as it comes.
var settled = map[bus.Phase]bool{
	bus.PhaseRunning: true, bus.PhaseDegraded: true, bus.PhaseStopped: true, bus.PhaseFailed: true,
}

// maxWaiting is how many of those that fit nowhere else a host's record names.
const maxWaiting = 5

// drainProgress counts what is still on a host.
func (m *Model) drainProgress(h *host) *bus.DrainProgress {
	var out bus.DrainProgress
	for _, b := range sorted(h.bindings) {
		switch m.role(b) {
		case current:
			out.Left++
			if p := m.proxies[b.proxy]; m.waiting[p] && len(out.Waiting) < maxWaiting {
				out.Waiting = append(out.Waiting, fmt.Sprintf("%s: %s", p.name, p.wait))
			}
		case retired:
			out.Leaving++
		}
	}
	return &out
}
