package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"proxyfleet/internal/bus"
)

// Choose returns the best of hosts for req, or nil when none fits: [Explain] says why.
func Choose(hosts map[string]*Host, req *Request) (*Host, Binding) {
	if pin := req.Spec.Placement.Host; pin != "" {
		h, known := hosts[pin]
		if !known {
			return nil, Binding{}
		}
		b, why := Fit(h, req)
		if !why.Fits() {
			return nil, Binding{}
		}
		return h, b
	}
	var (
		best    *Host
		binding Binding
	)
	for _, h := range hosts {
		b, why := Fit(h, req)
		if why.Fits() && (best == nil || better(h, &b, best, &binding, req)) {
			best, binding = h, b
		}
	}
	return best, binding
}

func better(a *Host, ab *Binding, b *Host, bb *Binding, req *Request) bool {
	if a.Name == req.Prefer || b.Name == req.Prefer {
		return a.Name == req.Prefer
	}
	like := &req.Spec.Placement.Prefer
	return cmp.Or(
		cmp.Compare(liking(b, like), liking(a, like)),
		cmp.Compare(req.InZone[a.Zone], req.InZone[b.Zone]),
		cmp.Compare(req.OnHost[a.Name], req.OnHost[b.Name]),
		cmp.Compare(load(a, ab.Shape), load(b, bb.Shape)),
		cmp.Compare(a.Bound.Slots, b.Bound.Slots),
		cmp.Compare(a.Name, b.Name),
	) < 0
}

// liking is how much of what is preferred a host has: one for the zone, one for each label.
func liking(h *Host, p *bus.Preference) (n int) {
	if p.Zone != "" && p.Zone == h.Zone {
		n++
	}
	for k, v := range p.Labels {
		if h.Labels[k] == v {
			n++
		}
	}
	return n
}

// load is the share of the scarcest resource that would be taken, 0 to 1. What a host has
// without limit does not load it.
func load(h *Host, need bus.Capacity) float64 {
	c, bound := h.Offer.Capacity, h.Bound
	return max(
		share(bound.VCPUs+need.VCPUs, c.VCPUs),
		share(bound.MemoryMiB+need.MemoryMiB, c.MemoryMiB),
		share(bound.DiskGiB+need.DiskGiB, c.DiskGiB),
		share(bound.Slots+need.Slots, c.Slots),
	)
}

func share(taken, of int) float64 {
	if of <= 0 {
		return 0
	}
	return float64(taken) / float64(of)
}

// Refusal is why one host does not fit.
type Refusal struct {
	Host string
	Why  Why
}

// Refusals returns, in the order of host names, why each host that could be asked does not
// fit. Hosts other than a pinned one are left out.
func Refusals(hosts map[string]*Host, req *Request) []Refusal {
	var out []Refusal
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		if pin := req.Spec.Placement.Host; pin != "" && pin != name {
			continue
		}
		if _, why := Fit(hosts[name], req); !why.Fits() {
			out = append(out, Refusal{name, why})
		}
	}
	return out
}

// named is how many hosts of one reason are named.
const named = 3

// Explain puts into one sentence why no host fits, hosts with one reason together.
func Explain(hosts map[string]*Host, req *Request) string {
	refusals := Refusals(hosts, req)
	if len(refusals) == 0 {
		if pin := req.Spec.Placement.Host; pin != "" {
			return "host " + pin + " is not known"
		}
		return "no host is known"
	}
	byReason := map[string][]string{}
	for _, r := range refusals {
		byReason[r.Why.String()] = append(byReason[r.Why.String()], r.Host)
	}
	reasons := slices.SortedFunc(maps.Keys(byReason), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(byReason[b]), len(byReason[a])), cmp.Compare(a, b))
	})
	parts := make([]string, len(reasons))
	for i, reason := range reasons {
		who := byReason[reason]
		text := strings.Join(who[:min(len(who), named)], ", ")
		if more := len(who) - named; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts[i] = text + ": " + reason
	}
	return strings.Join(parts, "; ")
}
