package core

import "proxyfleet/internal/coordinator/placement"

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
