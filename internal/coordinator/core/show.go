package core

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"proxyfleet/internal/bus"
)

// show brings the record and the endpoint of a proxy up to date in the inventory.
func (m *Model) show(p *proxy) {
	r, ok := m.record(p)
	if !ok {
		m.unput(Proxies, p.name)
		m.unput(Endpoints, endpointKey(p))
		p.phase = ""
		return
	}
	m.sayPhase(p, r)
	m.putDoc(Proxies, p.name, r)
	if e, ok := m.endpoint(p, r); ok {
		m.putDoc(Endpoints, endpointKey(p), e)
	} else {
		m.unput(Endpoints, endpointKey(p))
	}
}

// record is the inventory's view of a proxy; ok is false when there is nothing to show.
func (m *Model) record(p *proxy) (r bus.Record, ok bool) {
	l := &p.ledger
	bad := p.refusal()
	r = bus.Record{
		Type: bus.TypeRecord, Proxy: p.name, Pool: l.Pool, Pinned: l.Pinned,
		Accepted: bad == nil, IntentSeq: max(p.intent.seq, l.IntentSeq),
		Host: l.Host, UID: l.UID, Generation: l.Generation, Waiting: p.wait,
	}
	if bad != nil {
		r.Field, r.Reason = bad.Field, bad.Message
	}
	if l.Accepted != nil {
		r.Desired = l.Accepted.Desired
	}
	switch leaving := m.leaving(p); {
	case l.UID != "":
		m.fillState(&r, p)
		if r.Desired == bus.DesiredAbsent { // frozen
			return r, true
		}
	case l.Accepted != nil && l.Accepted.Desired != bus.DesiredAbsent:
		r.Phase = bus.PhasePending
	case leaving != nil:
		r.Phase, r.Host, r.UID = bus.PhaseDeleting, leaving.Host, leaving.UID
		if b := m.binding(leaving.Host, leaving.UID); b != nil && b.state != nil {
			r.Step, r.Percent, r.Error = b.state.Step, b.state.Percent, b.state.Error
		}
		if h := m.hosts[leaving.Host]; h == nil || !h.reachable {
			r.Phase, r.Waiting = bus.PhaseUnknown, "host "+leaving.Host+" is silent; it deletes as soon as it hears of it"
		}
	default:
		return r, bad != nil
	}
	return r, true
}

// leaving is a retired uid that is not gone yet, nil when there is none.
func (m *Model) leaving(p *proxy) *bus.Retired {
	for i := range p.ledger.Retired {
		if r := &p.ledger.Retired[i]; !r.Gone && !r.Stranded && !r.Abandoned {
			return r
		}
	}
	return nil
}

func (m *Model) fillState(r *bus.Record, p *proxy) {
	r.Phase = bus.PhasePending
	if b := m.binding(p.ledger.Host, p.ledger.UID); b != nil && b.state != nil {
		s := b.state
		r.Phase, r.Step, r.Percent = s.Phase, s.Step, s.Percent
		r.Addresses, r.Conditions, r.Error = s.Addresses, s.Conditions, s.Error
	}
	if h := m.hosts[p.ledger.Host]; h == nil || !h.reachable {
		r.Phase = bus.PhaseUnknown
	}
}

func endpointKey(p *proxy) string { return cmp.Or(p.ledger.Pool, "_") + "." + p.name }

// endpoint is what crawlers may use now; ok is false when they may not.
func (m *Model) endpoint(p *proxy, r bus.Record) (e bus.Endpoint, ok bool) {
	if r.Phase != bus.PhaseRunning || len(r.Addresses) == 0 || r.Desired != bus.DesiredRunning {
		return bus.Endpoint{}, false
	}
	return bus.Endpoint{
		Type: bus.TypeEndpoint, Proxy: p.name, Pool: r.Pool, UID: r.UID, Host: r.Host,
		Zone: m.host(r.Host).offer.Zone, Addresses: r.Addresses, Auth: p.ledger.Bound.Auth != nil,
	}, true
}

// sayPhase tells of the phases that people wait for, or should look at.
func (m *Model) sayPhase(p *proxy, r bus.Record) {
	was := p.phase
	p.phase = r.Phase
	if was == r.Phase || was == "" && r.Phase != bus.PhaseFailed {
		return
	}
	switch r.Phase {
	case bus.PhaseRunning, bus.PhaseFailed, bus.PhaseDegraded, bus.PhaseStopped:
		e := bus.Event{Cause: "agent", Host: r.Host, UID: r.UID, Seq: r.IntentSeq, Message: "on host " + r.Host}
		if r.Error != nil {
			e.Message += ": " + r.Error.Message
		}
		m.sayProxy(p, string(r.Phase), e)
	}
}

// conditions keeps since when each condition of a host has its status.
type conditions map[string]bus.Condition

func (c *conditions) set(now time.Time, typ, reason, message string, holds bool) {
	if *c == nil {
		*c = conditions{}
	}
	next := bus.Condition{Type: typ, Status: "False", Reason: reason, Message: message, Since: now}
	if holds {
		next.Status = "True"
	}
	if old := (*c)[typ]; old.Status == next.Status && old.Reason == next.Reason {
		next.Since = old.Since
	}
	(*c)[typ] = next
}

// note sets a condition that most hosts never have: it is there once it held.
func (c *conditions) note(now time.Time, typ, message string) {
	if _, had := (*c)[typ]; had || message != "" {
		c.set(now, typ, "", message, message != "")
	}
}

// closed says why a host takes no new proxies, or nothing when it does.
func (m *Model) closed(h *host) string {
	reason, message := m.trouble(h)
	if reason != "" {
		return cmp.Or(message, reason)
	}
	return m.shut(h)
}

// trouble is what is wrong with a host as such, as a stable reason and a text.
func (m *Model) trouble(h *host) (reason, message string) {
	if !h.lost.IsZero() {
		return "Lost", "silent, and given up at " + h.lost.Format(time.RFC3339)
	}
	if !h.reachable {
		return "Unreachable", "silent"
	}
	if h.doc == nil { // lost, or replaced by another host's of the same name
		return "Unknown", "its own document is not there"
	}
	if !h.runs.cloned.IsZero() {
		return "Cloned", "two agents that beat with its host id: a state directory was copied"
	}
	for _, uid := range slices.Sorted(maps.Keys(h.faults)) {
		return "HostFault", "a fault of its own: " + h.faults[uid]
	}
	for _, c := range h.doc.Checks {
		if closing[c.Code] {
			return c.Code, fmt.Sprintf("a fault of its own: check of %s: %s", c.Target, cmp.Or(c.Message, c.Code))
		}
	}
	return "", ""
}

// closing are the codes of checks (see the backends' contract) that concern the host as a
// whole: what runs keeps running, nothing new would come up.
var closing = map[string]bool{
	"CredentialsUnavailable":    true,
	"CertificateInvalid":        true,
	"HostKeyInvalid":            true,
	"Unauthorized":              true,
	"Forbidden":                 true,
	"Unreachable":               true,
	"Timeout":                   true,
	"VirtualisationUnavailable": true,
}

// showHost brings the record of a host up to date.
func (m *Model) showHost(h *host) {
	if h.id == "" {
		return
	}
	m.putDoc(Hosts, h.name, m.hostRecord(h))
}

// hostRecord is the inventory's view of a host.
func (m *Model) hostRecord(h *host) bus.HostRecord {
	reason, message := m.trouble(h)
	h.conditions.set(m.now, "Ready", cmp.Or(reason, "Ready"), message, reason == "")
	unclaimed := m.unknown(h)
	text := ""
	if len(unclaimed) > 0 {
		names := make([]string, len(unclaimed))
		for i, u := range unclaimed {
			names[i] = u.Proxy + "/" + u.UID
		}
		text = "not known to the ledger, left alone: " + strings.Join(names, ", ")
	}
	h.conditions.set(m.now, "Stranded", "", text, len(unclaimed) > 0)
	h.conditions.note(m.now, "Frozen", m.frozen)
	h.conditions.note(m.now, "Closed", m.shut(h))
	r := bus.HostRecord{
		Type: bus.TypeHostRecord, Host: h.name, HostID: h.id, Session: h.session,
		Bound: h.offer.Bound, Conditions: sorted(h.conditions), Unclaimed: unclaimed,
	}
	if d := h.doc; d != nil {
		r.Backend, r.Zone, r.Labels, r.Offer, r.Checks = d.Backend, d.Zone, d.Labels, d.Offer, d.Checks
	}
	if !reflect.DeepEqual(h.orders, bus.HostOrders{}) {
		orders := h.orders
		r.Orders = &orders
	}
	if h.orders.Drain != nil {
		r.Drain = m.drainProgress(h)
	}
	return r
}

// putDoc commands a key to be set, unless it is set like that.
func (m *Model) putDoc(b Bucket, key string, doc any) {
	data := bus.Encode(doc)
	if have, ok := m.put[b][key]; ok && have == string(data) {
		return
	}
	m.put[b][key] = string(data)
	m.do(Put{b, key, data})
}

func (m *Model) unput(b Bucket, key string) {
	if _, ok := m.put[b][key]; ok {
		delete(m.put[b], key)
		m.do(Delete{b, key})
	}
}
