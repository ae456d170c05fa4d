package core

import "strings"

// enlist has a pool take something that a host has under a member's name, and that no
// ledger entry and no intent knows, as that member. It reports whether it did.
func (m *Model) enlist(s *Stranding, cause string) bool {
	po, b := m.poolOf(s.Proxy), m.binding(s.Host, s.UID)
	if po == nil || s.Kind != "instance" && (b == nil || b.state == nil) {
		return false
	}
	if p := m.proxies[s.Proxy]; p != nil && (p.stored || p.intent.seq != 0) {
		return false
	}
	d := m.reopen(m.proxy(s.Proxy))
	d.take(m.memberDoc(po, s.Proxy), po.ledger.IntentSeq, po.name)
	if m.adoptInto(d, s, cause) != "" {
		return false
	}
	if n := memberNumber(po.name, s.Proxy); n > po.ledger.Last {
		po.ledger.Last = n
		m.commitPool(po)
	}
	m.conclude(d)
	m.noteMember(d.p)
	m.mark(d.p)
	return true
}

// enlistAll has a pool take all that hosts have under its members' names, where streams
// were lost before: its document came later than the recovery.
func (m *Model) enlistAll(po *pool) {
	if m.recovery == "" || m.frozen != "" {
		return
	}
	for _, s := range m.strandings("") {
		if m.poolOf(s.Proxy) == po {
			m.enlist(&s, "leader")
		}
	}
}

// poolOf is the pool that a name is a member's of, nil where there is none.
func (m *Model) poolOf(name string) *pool {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return nil
	}
	po := m.pools[name[:i]]
	if po == nil || po.absent() || memberName(po.name, memberNumber(po.name, name)) != name {
		return nil
	}
	return po
}
