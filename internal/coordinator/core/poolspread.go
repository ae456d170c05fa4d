package core

import (
	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

// bounded reports whether no more than some members may be in one place.
func (po *pool) bounded() bool { return !po.absent() && po.ledger.Accepted.Spread != (bus.Spread{}) }

// retryMembers has members that wait for a host look for one again.
func (m *Model) retryMembers(po *pool) {
	if len(m.waiting) == 0 {
		return
	}
	for _, e := range po.roster.all() {
		if m.waiting[e.proxy] {
			m.mark(e.proxy)
		}
	}
}

// makeWay gives up a member's binding where another host fits, and reports whether it did.
// The member is placed anew once that is gone: both at once would be more than the pool may have.
func (m *Model) makeWay(d *decision, req *placement.Request, why string) bool {
	if h, _ := placement.Choose(m.offers, req); h == nil {
		return false
	}
	host, uid := d.next.Host, d.next.UID
	m.unbind(d)
	m.sayProxy(d.p, "Moving", bus.Event{Cause: "agent", Host: host, UID: uid, Seq: d.next.IntentSeq, Message: "host " + why + "; it is tried again once nothing of it is left there"})
	return true
}

// madeWay is a host that is heard of and has something of a retired binding; empty: none.
func (m *Model) madeWay(l *bus.Ledger) string {
	for _, r := range l.Retired {
		if h := m.hosts[r.Host]; !r.Gone && !r.Stranded && h != nil && h.reachable {
			return r.Host
		}
	}
	return ""
}

// spread tells placement where the other members of the proxy's pool are.
func (m *Model) spread(d *decision, req *placement.Request) {
	po := m.pools[d.next.Pool]
	if d.next.Pool == "" || po == nil || po.absent() {
		return
	}
	req.MaxPerHost, req.MaxPerZone = po.ledger.Accepted.Spread.MaxPerHost, po.ledger.Accepted.Spread.MaxPerZone
	req.OnHost, req.InZone = map[string]int{}, map[string]int{}
	own := po.roster.members[d.p].host
	for host, n := range po.roster.onHost {
		if host == own {
			n-- // it does not keep away from itself
		}
		req.OnHost[host] = n
		req.InZone[m.host(host).offer.Zone] += n
	}
}
