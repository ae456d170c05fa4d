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
