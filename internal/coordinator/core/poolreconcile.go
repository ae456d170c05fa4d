package core

import (
	"cmp"
	"fmt"
	"time"

	"proxyfleet/internal/bus"
)

const (
	firstRetry = time.Minute
	// maxRetryDoublings bounds the wait between replacements that fail: 64 min.
	maxRetryDoublings = 6
)

// backoff is how long sick members are not replaced after so many failures in a row.
func backoff(failures int) time.Duration {
	return firstRetry << min(max(failures-1, 0), maxRetryDoublings)
}

// succeed ends a row of failures.
func (po *pool) succeed() {
	po.ledger.Failures, po.ledger.FailedLast, po.ledger.RetryAt = 0, 0, time.Time{}
}

// order is what a pool decided for one of its members, until the member's own
// reconciliation has taken it into the ledger.
type order struct {
	doc   *bus.Intent
	seq   uint64
	pool  string
	cause string // of the events that follow
	why   string
}

// reason is the cause of the events that follow from an order.
func (o order) reason() string { return cmp.Or(o.cause, "intent") }

// reconcilePool brings what is decided for a pool in line with what is known. What it
// decides for members is carried out by theirs.
func (m *Model) reconcilePool(po *pool) {
	before, ordered := po.ledger, 0
	m.acceptPool(po)
	po.wait = ""
	if po.ledger.Accepted != nil {
		if po.recovered {
			po.succeed()
		}
		t := m.terms(po)
		o := plan(t, &po.roster)
		ordered = m.carryOut(po, o)
		po.wait = waitText(po, t, o)
	}
	po.recovered = false
	m.concludePool(po, before)
	if ordered > 0 {
		m.markPool(po) // it is shown with what comes of that
		return
	}
	m.showPool(po)
}

// acceptPool takes the newest intent into the ledger entry.
func (m *Model) acceptPool(po *pool) {
	in, l := &po.intent, &po.ledger
	po.held = ""
	if in.doc == nil || in.seq <= l.IntentSeq || m.doubts(in.seq, po.stored) {
		return
	}
	doc := in.doc
	switch {
	case doc.Desired == bus.DesiredAbsent:
		if !po.stored && po.roster.empty() {
			return // nothing of that name was ever decided
		}
		doc = &bus.PoolIntent{Type: doc.Type, Name: doc.Name, Desired: doc.Desired} // keep no secret of what goes
		m.sayPool(po, "Deleting", bus.Event{Cause: "intent", Seq: in.seq, Message: "all its members are removed"})
	case m.full != "":
		po.held = m.full
		return
	}
	l.Accepted, l.IntentSeq = doc, in.seq
	po.succeed() // what failed may do so no longer
	if doc.Desired == bus.DesiredRunning {
		low, high := doc.Bounds()
		l.Size = min(max(l.Size, low), high)
		m.sayPool(po, "Accepted", bus.Event{Cause: "intent", Seq: in.seq, Message: fmt.Sprintf("its size is %d", l.Size)})
	}
	po.noteTemplate()
	m.judgeAll(po)
	m.retryMembers(po) // bounds may have been what kept them
	m.enlistAll(po)
}

// terms are the numbers that a pool's document and requests come to.
func (m *Model) terms(po *pool) terms {
	l := &po.ledger
	if po.absent() {
		return terms{absent: m.frozen == "", hold: m.frozen}
	}
	t := terms{
		size: l.Size, surge: *l.Accepted.Update.Surge, maxUnavailable: l.Accepted.Update.MaxUnavailable,
		newestFirst: l.Accepted.ScaleDown == "newest",
		hold:        m.frozen, full: m.full,
		retry: !m.now.Before(l.RetryAt),
	}
	if l.Paused {
		t.hold = "paused; nothing is added, replaced or removed until it is resumed"
	}
	return t
}

// carryOut gives members their orders, and returns to how many.
func (m *Model) carryOut(po *pool, o orders) (ordered int) {
	cause, why := "intent", "the pool grows"
	for _, e := range o.retire {
		reason := e.due
		if reason == (due{}) {
			reason = due{"intent", "the pool shrinks"}
			if po.absent() {
				reason.why = "its pool is removed"
			}
		} else {
			cause, why = reason.cause, "it replaces "+e.proxy.name
		}
		m.order(po, e.proxy, order{doc: &bus.Intent{Type: bus.TypeIntent, Name: e.proxy.name, Desired: bus.DesiredAbsent}, cause: reason.cause, why: reason.why})
	}
	if len(po.roster.due) > 0 && o.create > 0 && cause == "intent" {
		for _, e := range po.roster.among(po.roster.due)[:1] {
			cause, why = e.due.cause, "it is to replace "+e.proxy.name
		}
	}
	for range o.create {
		if p := m.vacant(po); p != nil {
			ordered++
			m.order(po, p, order{doc: m.memberDoc(po, p.name), cause: cause, why: why})
		}
	}
	for _, e := range o.change {
		m.order(po, e.proxy, order{doc: m.memberDoc(po, e.proxy.name), cause: "intent"})
	}
	for _, e := range o.condemn {
		e.proxy.condemned = true
		po.ledger.Failures++
		po.ledger.FailedLast = po.ledger.Last
		po.ledger.RetryAt = m.now.Add(backoff(po.ledger.Failures))
		m.sayPool(po, "MemberFailed", bus.Event{Cause: "health", Proxy: e.proxy.name, UID: e.proxy.ledger.UID, Message: fmt.Sprintf(
			"%s: %s; it is replaced, and where that fails as well, none before %s (%d in a row)",
			e.proxy.name, m.failure(e.proxy), po.ledger.RetryAt.Format(time.RFC3339), po.ledger.Failures)})
		m.noteMember(e.proxy)
	}
	return ordered + len(o.retire) + len(o.change) + len(o.condemn)
}

func (m *Model) memberDoc(po *pool, name string) *bus.Intent {
	return &bus.Intent{Type: bus.TypeIntent, Name: name, Desired: bus.DesiredRunning, Spec: po.ledger.Accepted.Template}
}

// order has a member's reconciliation take an order into its ledger entry.
func (m *Model) order(po *pool, p *proxy, o order) {
	o.seq, o.pool = po.ledger.IntentSeq, po.name
	p.order = &o
	m.mark(p)
}

// vacant takes the next number that nobody holds the name of; nil: there is none any more.
func (m *Model) vacant(po *pool) *proxy {
	for {
		name := memberName(po.name, po.ledger.Last+1)
		if len(name) > bus.MaxProxyName {
			return nil
		}
		po.ledger.Last++
		if p := m.proxies[name]; (p == nil || !p.stored && p.intent.seq == 0) && m.squatter(name) == nil {
			return m.proxy(name)
		}
	}
}

// concludePool stores what changed, and forgets a pool of which nothing is left.
func (m *Model) concludePool(po *pool, before bus.PoolLedger) {
	switch {
	case po.stored && po.ledger.Accepted != nil && po.absent() && po.roster.empty():
		if before != po.ledger {
			m.commitPool(po) // its echo brings it here again
		} else if po.ledgerSeq != 0 && po.echoes.settled() {
			m.do(ForgetLedger{bus.Msg{Subject: m.cfg.Names.Ledger("pool", po.name), Seq: po.ledgerSeq}})
			po.stored, po.ledgerSeq, po.echoes, po.ledger = false, 0, echoes{}, emptyPoolLedger(po.name)
		}
	case before != po.ledger:
		m.commitPool(po)
	}
	po.wakeAt = earlier(po.wakeAt, po.retryAt(m.now))
}

// retryAt is when sick members may be replaced again; zero: there are none, or it is time.
func (po *pool) retryAt(now time.Time) time.Time {
	if len(po.roster.sick) == 0 || !po.ledger.RetryAt.After(now) {
		return time.Time{}
	}
	return po.ledger.RetryAt
}

// tickPools wakes the pools that have something due.
func (m *Model) tickPools() {
	for _, po := range sorted(m.pools) {
		if !po.wakeAt.IsZero() && !m.now.Before(po.wakeAt) {
			m.judgeAll(po)
			m.markPool(po)
		}
	}
}
