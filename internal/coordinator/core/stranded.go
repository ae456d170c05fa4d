package core

import (
	"fmt"
	"slices"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// Stranded asks for what is left somewhere and nobody can or may remove by itself: what a
// removed host left behind, what a host with a fault of its own (a credential that expired)
// cannot delete, and what hosts found that the ledger does not know. It is answered by
// [Strandings].
type Stranded struct {
	Host string `json:"host,omitempty"` // of this host only
}

// Strandings answers [Stranded], in the order of hosts and uids.
type Strandings struct {
	Items []Stranding `json:"items"`
}

// Stranding is one thing that waits for a person: for [Abandon], [Resolve] or [Adopt].
type Stranding struct {
	Host   string `json:"host"`
	HostID string `json:"hostId,omitempty"`
	Proxy  string `json:"proxy"`
	UID    string `json:"uid"`
	Kind   string `json:"kind"`   // "instance", "volume", … or "binding": nobody has looked what is there
	Reason string `json:"reason"` // why it is left, for people
}

// Abandon gives up one stranded thing: it is not listed any more, and what there is of it
// is left as it is, for somebody to remove by hand. A new instance of the name may be made.
type Abandon struct {
	Host   string `json:"host"`
	UID    string `json:"uid"`
	Reason string `json:"reason,omitempty"`
}

// Resolve has one stranded thing removed that the ledger did not know: its host gets a
// tombstone.
type Resolve struct {
	Host   string `json:"host"`
	UID    string `json:"uid"`
	Reason string `json:"reason,omitempty"`
}

// Adopt takes one stranded thing as what the intent of its proxy asks for. The proxy must
// have an intent, and no other binding.
type Adopt struct {
	Host string `json:"host"`
	UID  string `json:"uid"`
}

func (c Stranded) decide(m *Model) (any, *intents.Invalid) {
	if c.Host != "" && m.hosts[c.Host] == nil {
		return nil, notThere("host", c.Host)
	}
	return Strandings{Items: m.strandings(c.Host)}, nil
}

// strandings lists what is stranded, on one host or on all.
func (m *Model) strandings(on string) []Stranding {
	out := []Stranding{}
	for _, p := range sorted(m.proxies) {
		for _, r := range p.ledger.Retired {
			if why := m.stuck(r); why != "" && (on == "" || on == r.Host) {
				out = append(out, Stranding{Host: r.Host, HostID: r.HostID, Proxy: p.name, UID: r.UID, Kind: "binding", Reason: why})
			}
		}
	}
	for _, h := range sorted(m.hosts) {
		if on != "" && on != h.name {
			continue
		}
		for _, u := range m.unknown(h) {
			out = append(out, Stranding{Host: h.name, HostID: h.id, Proxy: u.Proxy, UID: u.UID, Kind: u.Kind, Reason: "the ledger does not know it"})
		}
	}
	slices.SortStableFunc(out, func(a, b Stranding) int { return cmpPairs(a.Host, b.Host, a.UID, b.UID) })
	return out
}

// cannotDelete are the errors of a deletion that a person has to look at.
var cannotDelete = []string{codeHostFault, codeConflict}

// stuck says why a retired uid will not go by itself, or nothing when it will.
func (m *Model) stuck(r bus.Retired) string {
	if r.Gone || r.Abandoned {
		return ""
	}
	h := m.hosts[r.Host]
	switch {
	case r.Stranded:
		return "host " + r.Host + " was removed before it said that nothing is left"
	case h == nil || !h.reachable || h.doc == nil:
		return "" // a tombstone waits for it
	}
	if b := h.bindings[r.UID]; b != nil && b.state != nil && b.state.Error != nil && slices.Contains(cannotDelete, b.state.Error.Code) {
		return "its host cannot delete it: " + b.state.Error.Message
	}
	if reason, message := m.trouble(h); reason != "" {
		return "its host has " + message
	}
	return ""
}

// unknown are the things of a host that the ledger does not know: what it found, and what
// messages name.
func (m *Model) unknown(h *host) []bus.Unclaimed {
	out := slices.Clone(h.unclaimed)
	for _, b := range sorted(h.strays) {
		if !slices.ContainsFunc(out, func(u bus.Unclaimed) bool { return u.UID == b.uid }) {
			out = append(out, bus.Unclaimed{Proxy: b.proxy, UID: b.uid, Kind: "binding"})
		}
	}
	return slices.DeleteFunc(out, h.abandoned)
}

// abandoned reports whether a person gave something up.
func (h *host) abandoned(u bus.Unclaimed) bool {
	return slices.ContainsFunc(h.orders.Abandoned, func(a bus.Unclaimed) bool { return a.UID == u.UID })
}

// forgetAbandoned forgets what was given up and is not there any more.
func (m *Model) forgetAbandoned(h *host) {
	kept := slices.DeleteFunc(slices.Clone(h.orders.Abandoned), func(a bus.Unclaimed) bool {
		there := slices.ContainsFunc(h.doc.Unclaimed, func(u bus.Unclaimed) bool { return u.UID == a.UID })
		return !there && h.strays[a.UID] == nil
	})
	if len(kept) < len(h.orders.Abandoned) {
		if h.orders.Abandoned = kept; len(kept) == 0 {
			h.orders.Abandoned = nil
		}
		m.commitHost(h)
	}
}

// found returns the stranded thing that a request names.
func (m *Model) found(hostName, uid string) (*Stranding, *intents.Invalid) {
	for _, s := range m.strandings(hostName) {
		if s.UID == uid {
			return &s, nil
		}
	}
	return nil, &intents.Invalid{Code: codeNotFound, Field: "uid", Message: fmt.Sprintf("nothing of uid %q is stranded on host %q", uid, hostName)}
}

func (c Abandon) decide(m *Model) (any, *intents.Invalid) {
	s, bad := m.found(c.Host, c.UID)
	if bad != nil {
		return nil, bad
	}
	h, p := m.hosts[s.Host], m.proxies[s.Proxy]
	e := bus.Event{Cause: "person", Host: s.Host, UID: s.UID, Proxy: s.Proxy,
		Message: "what may be left of it on host " + s.Host + " is left as it is" + because(c.Reason)}
	if p != nil && p.retired(s.Host, s.UID) != nil {
		d := m.reopen(p)
		for i := range d.next.Retired {
			if r := &d.next.Retired[i]; r.UID == s.UID && r.Host == s.Host {
				r.Gone, r.Abandoned, r.Since, r.Shape, d.changed = r.Stranded, !r.Stranded, m.now, nil, true
				r.Stranded = false
			}
		}
		m.sayProxy(p, "Abandoned", e)
		m.conclude(d)
		m.mark(p)
		return *s, nil
	}
	h.orders.Abandoned = append(h.orders.Abandoned, bus.Unclaimed{Proxy: s.Proxy, UID: s.UID, Kind: s.Kind})
	m.commitHost(h)
	m.sayHost(h, "Abandoned", e)
	m.freed(s)
	return *s, nil
}

func (c Resolve) decide(m *Model) (any, *intents.Invalid) {
	s, bad := m.found(c.Host, c.UID)
	if bad != nil {
		return nil, bad
	}
	if m.frozen != "" {
		return nil, &intents.Invalid{Code: codeFrozen, Field: "uid", Message: m.frozen}
	}
	p := m.proxy(s.Proxy)
	if p.retired(s.Host, s.UID) != nil {
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "uid", Message: "a tombstone waits for it already, and " + s.Reason + "; abandon it if it is gone"}
	}
	d := m.reopen(p)
	r := bus.Retired{UID: s.UID, Host: s.Host, HostID: s.HostID, Since: m.now, Generation: m.lastGeneration(s) + 1}
	d.next.Retired = append(d.next.Retired, r)
	m.bury(d, r)
	m.sayProxy(p, "Deleting", bus.Event{Cause: "person", Host: s.Host, UID: s.UID, Message: "what the ledger did not know is removed from host " + s.Host + because(c.Reason)})
	m.conclude(d)
	m.forgetStray(s)
	m.freed(s)
	return *s, nil
}

func (c Adopt) decide(m *Model) (any, *intents.Invalid) {
	s, bad := m.found(c.Host, c.UID)
	if bad != nil {
		return nil, bad
	}
	p := m.proxies[s.Proxy]
	switch {
	case m.enlist(s, "person"):
		return *s, nil
	case p == nil || p.ledger.Accepted == nil || p.ledger.Accepted.Desired == bus.DesiredAbsent:
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "uid", Message: fmt.Sprintf("no intent asks for proxy %s; publish one first", s.Proxy)}
	case p.ledger.UID != "":
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "uid", Message: fmt.Sprintf("proxy %s is bound to host %s with uid %s", s.Proxy, p.ledger.Host, p.ledger.UID)}
	}
	if why := m.adopt(p, s, "person"); why != "" {
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "host", Message: why}
	}
	return *s, nil
}
