package core

import (
	"slices"

	"proxyfleet/internal/bus"
)

// avoid names, for each host that the proxy must keep away from, what keeps it away:
// something that it names in its anti-affinity, or something that names it. What is retired
// counts until it is gone.
func (m *Model) avoid(d *decision) map[string]string {
	var out map[string]string
	note := func(host, other string) {
		if out == nil {
			out = map[string]string{}
		}
		if have := out[host]; have == "" || other < have {
			out[host] = other
		}
	}
	own := d.next.Accepted.Spec.Placement
	if len(own.AntiAffinity) > 0 {
		for _, h := range m.hosts {
			for _, b := range h.bindings {
				if b.shape != (bus.Capacity{}) && own.KeepsFrom(d.p.name, b.proxy) {
					note(h.name, b.proxy)
				}
			}
		}
	}
	for q := range m.keepers {
		if !q.ledger.Accepted.Spec.Placement.KeepsFrom(q.name, d.p.name) {
			continue
		}
		if q.ledger.UID != "" {
			note(q.ledger.Host, q.name)
		}
		for _, r := range q.ledger.Retired {
			if !r.Gone && r.Shape != nil {
				note(r.Host, q.name)
			}
		}
	}
	return out
}

// noteKeeper keeps the proxies whose intents have an anti-affinity. Whom one kept away may
// fit when it changes.
func (m *Model) noteKeeper(p *proxy) {
	var names []string
	if a := p.ledger.Accepted; a != nil {
		names = a.Spec.Placement.AntiAffinity
	}
	was, had := m.keepers[p]
	if len(names) > 0 {
		m.keepers[p] = names
	} else {
		delete(m.keepers, p)
	}
	if had && !slices.Equal(was, names) {
		m.markWaiting(func(*proxy) bool { return true })
	}
}
