package core

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

// weakFor is how long a member may fail its health check until it is replaced.
const weakFor = 10 * time.Minute

// noteMember has a member's pool count it as it is now. The pool decides anew when that
// makes a difference.
func (m *Model) noteMember(p *proxy) {
	if po := p.of; po != nil && po.name != p.ledger.Pool {
		po.roster.put(member{proxy: p})
		p.of = nil
		m.markPool(po)
	}
	if p.ledger.Pool == "" {
		return
	}
	if p.owned != "" && !isMember(&p.ledger) {
		m.mark(p) // the name is free for the intent that waited for it
	}
	po := m.pool(p.ledger.Pool)
	p.of = po
	now := m.judge(po, p)
	was := po.roster.put(now)
	if now.life == unplaced {
		po.unplaced = p.wait
	}
	po.wakeAt = earlier(po.wakeAt, now.wakeAt)
	if was == now {
		return
	}
	if was.host != "" && was.host != now.host && po.bounded() {
		m.retryMembers(po) // there is one less where bounds may have kept others away
	}
	if now.life == failed || now.life == weak {
		po.failure = p.name + ": " + m.failure(p)
	}
	if now.life == ready && was.life != ready && po.ledger.Failures > 0 && now.number > po.ledger.FailedLast {
		po.recovered = true
	}
	m.markPool(po)
}

// judgeAll judges all members anew: something changed that concerns each.
func (m *Model) judgeAll(po *pool) {
	po.wakeAt = time.Time{}
	for _, e := range po.roster.all() {
		m.noteMember(e.proxy)
	}
}

// judge says how a member is, as its pool counts it.
func (m *Model) judge(po *pool, p *proxy) member {
	l := &p.ledger
	e := member{proxy: p, number: memberNumber(po.name, p.name), pinned: l.Pinned}
	e.life, e.host = m.life(p)
	if e.life != weak {
		p.weakSince = time.Time{}
	} else if p.weakSince.IsZero() {
		p.weakSince = m.now
	}
	if e.life == ready {
		p.condemned, p.fresh = false, false
	}
	if !e.life.stays() {
		return e
	}
	if l.UID != "" {
		e.double = m.madeWay(l) != ""
	}
	switch e.life {
	case failed:
		e.sick = true
	case unplaced:
		e.sick = m.squatter(p.name) != nil // another name has a host
	case weak:
		if e.sick = m.now.Sub(p.weakSince) >= weakFor; !e.sick {
			e.wakeAt = p.weakSince.Add(weakFor)
		}
	case silent:
		return e // nothing could be done about it there
	}
	replace := false
	if p.templateOf() == po.template || po.absent() {
		e.changing = m.changing(p, e.life)
	} else {
		e.step, replace = m.stepOf(po, l)
	}
	e.due = m.due(po, p, replace)
	if age := rotateAt(po.ledger.Accepted, l.UID); e.due == (due{}) && !e.pinned && !age.IsZero() {
		e.wakeAt = earlier(e.wakeAt, age)
	}
	return e
}

// changing reports whether a member was changed in place and is not ready since. One that
// was never up is none: it only comes up otherwise than it was to.
func (m *Model) changing(p *proxy, l life) bool {
	switch {
	case p.ledger.Generation < 2 || l == unplaced:
		return false
	case l == ready:
		b := m.binding(p.ledger.Host, p.ledger.UID)
		return b.state.Generation < p.ledger.Generation
	}
	return !p.fresh
}

// life says how far a member is, and which host it takes room on.
func (m *Model) life(p *proxy) (life, string) {
	l := &p.ledger
	if l.Accepted == nil || l.Accepted.Desired == bus.DesiredAbsent {
		return m.farewell(p)
	}
	if l.UID == "" {
		if at := m.madeWay(l); at != "" {
			return coming, at
		}
		return unplaced, ""
	}
	h := m.hosts[l.Host]
	if h == nil || !h.reachable || h.doc == nil {
		return silent, l.Host
	}
	b := m.binding(l.Host, l.UID)
	if b == nil || b.state == nil {
		return coming, l.Host
	}
	switch s := b.state; s.Phase {
	case bus.PhaseRunning:
		if len(s.Addresses) > 0 {
			return ready, l.Host
		}
	case bus.PhaseDegraded:
		return weak, l.Host
	case bus.PhaseFailed:
		if s.Error == nil || s.Error.Code != codeNoCapacity && s.Error.Code != codeHostFault {
			return failed, l.Host
		} // else room or the host's mending is waited for, and a replacement would wait as well
	}
	return coming, l.Host
}

// farewell says how far a member is that goes.
func (m *Model) farewell(p *proxy) (life, string) {
	if p.ledger.UID != "" { // deletions are frozen
		return leaving, p.ledger.Host
	}
	if at := m.madeWay(&p.ledger); at != "" {
		return leaving, at
	}
	for _, r := range p.ledger.Retired {
		if !r.Gone && !r.Stranded {
			return adrift, r.Host
		}
	}
	return absent, ""
}

// templateOf is the digest of the spec that the member's ledger entry accepted.
func (p *proxy) templateOf() string {
	if p.specOf != p.ledger.Accepted {
		p.specOf, p.spec = p.ledger.Accepted, digest(p.ledger.Accepted.Spec)
	}
	return p.spec
}

// stepOf says what a member needs to have the newest template: a step, or replace.
func (m *Model) stepOf(po *pool, l *bus.Ledger) (s step, replace bool) {
	if l.UID == "" {
		return note, false
	}
	template, h := po.ledger.Accepted.Template, m.hosts[l.Host]
	if !placement.Matches(h.offer, template.Placement).Fits() {
		return none, true
	}
	target := standing(template, l, h)
	switch fields := differ(target, *l.Bound); {
	case len(fields) == 0:
		return note, false
	case !h.inPlace(fields, target, *l.Bound):
		return none, true
	}
	return inPlace, false
}

// due says why a member that has a host is to be replaced.
func (m *Model) due(po *pool, p *proxy, outdated bool) due {
	l := &p.ledger
	switch {
	case po.absent():
		return due{}
	case p.condemned:
		return due{"health", "it is unhealthy"}
	case l.UID == "":
		return due{}
	}
	if why := m.evicted(p); why != "" {
		return due{"person", why}
	}
	born, at := bornOf(l.UID), rotateAt(po.ledger.Accepted, l.UID)
	switch {
	case outdated:
		return due{"intent", "it has an older template"}
	case l.Rotate:
		return due{"person", "a person asked for its rotation"}
	case l.Pinned:
	case born.Before(po.ledger.RotateBefore):
		return due{"person", "a person asked for the pool's rotation"}
	case !at.IsZero() && !at.After(m.now):
		return due{"rotation", "it came of age"}
	}
	return due{}
}

// failure is what is wrong with a member, for people.
func (m *Model) failure(p *proxy) string {
	b := m.binding(p.ledger.Host, p.ledger.UID)
	if b == nil || b.state == nil {
		return p.wait
	}
	if b.state.Error != nil {
		return b.state.Error.Message
	}
	for _, c := range b.state.Conditions {
		if c.Status == "False" && c.Message != "" {
			return c.Message
		}
	}
	return string(b.state.Phase)
}

// bornOf is when a uid was made: it is a ULID.
func bornOf(uid string) time.Time {
	id, err := ulid.Parse(uid)
	if err != nil {
		return time.Time{}
	}
	return ulid.Time(id.Time()).UTC()
}

// rotateAt is when the binding of a uid comes of age; zero: never. How much earlier than
// the greatest age that is follows from the uid, so every coordinator comes to the same.
func rotateAt(doc *bus.PoolIntent, uid string) time.Time {
	if doc == nil || doc.Rotation == nil || uid == "" {
		return time.Time{}
	}
	maxAge, jitter, err := doc.Rotation.Ages()
	if err != nil {
		return time.Time{}
	}
	sum := sha256.Sum256([]byte(uid))
	share := float64(binary.BigEndian.Uint32(sum[:4])) / (1 << 32)
	return bornOf(uid).Add(maxAge - time.Duration(share*float64(jitter)))
}

// earlier is the earlier of two times; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
