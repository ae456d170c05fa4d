package core

import (
	"fmt"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
	"proxyfleet/internal/coordinator/placement"
)

// Explain asks where a proxy would be placed now, and changes nothing: by its name as its
// intent says, or by a spec as if it were new. It is answered by [Explanation].
type Explain struct {
	Proxy string    `json:"proxy,omitempty"`
	Spec  *bus.Spec `json:"spec,omitempty"` // instead of the intent's; needs no access rule
}

// Explanation says for each host why or why not.
type Explanation struct {
	Host    string        `json:"host,omitempty"`    // that would be taken; empty: none
	Waiting string        `json:"waiting,omitempty"` // why none can be
	Bound   string        `json:"bound,omitempty"`   // where the proxy is now; it does not move without need
	Hosts   []HostVerdict `json:"hosts"`             // in the order in which they would be taken, then those that do not fit
}

// HostVerdict is what placement thinks of one host.
type HostVerdict struct {
	Host   string  `json:"host"`
	Fits   bool    `json:"fits"`
	Reason string  `json:"reason,omitempty"` // why it does not fit
	Liking int     `json:"liking,omitempty"` // how much it has of what is preferred
	Load   float64 `json:"load"`             // share of its scarcest resource that would be taken, 0 to 1
}

func (c Explain) decide(m *Model) (any, *intents.Invalid) {
	p := m.proxies[c.Proxy]
	switch {
	case c.Proxy == "" && c.Spec == nil:
		return nil, &intents.Invalid{Code: intents.CodeMissing, Field: "proxy", Message: "neither a proxy nor a spec is given"}
	case c.Spec == nil && (p == nil || p.ledger.Accepted == nil || p.ledger.Accepted.Desired == bus.DesiredAbsent):
		return nil, &intents.Invalid{Code: codeNotFound, Field: "proxy", Message: fmt.Sprintf("no intent asks for proxy %q", c.Proxy)}
	case p == nil:
		p = &proxy{name: c.Proxy, ledger: emptyLedger(c.Proxy)}
	}
	d := m.reopen(p)
	if c.Spec != nil {
		if bad := intents.Placement("spec", *c.Spec); bad != nil {
			return nil, bad
		}
		d.next.Accepted, d.next.Refused = &bus.Intent{Spec: *c.Spec}, nil
	}
	req := m.request(d)
	out := Explanation{Bound: p.ledger.Host, Hosts: []HostVerdict{}}
	for _, v := range placement.Judge(m.offers, req) {
		out.Hosts = append(out.Hosts, HostVerdict{Host: v.Host.Name, Fits: v.Why.Fits(), Reason: v.Why.String(), Liking: v.Liking, Load: v.Load})
	}
	switch held := m.unplaceable(p); {
	case held != "":
		out.Waiting = held
	case len(out.Hosts) > 0 && out.Hosts[0].Fits:
		out.Host = out.Hosts[0].Host
	default:
		out.Waiting = placement.Explain(m.offers, req)
	}
	return out, nil
}
