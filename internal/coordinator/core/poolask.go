package core

import (
	"fmt"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// Scale sets the size of a pool whose document gives min and max. Where the document gives
// the size, another document does. It is answered by the pool's [bus.PoolRecord], and so
// are the other requests about a pool.
type Scale struct {
	Pool string `json:"pool"`
	Size int    `json:"size"`
}

// Rotate has members replaced as if they had come of age: one by the name Proxy, or all of
// Pool that are not pinned. Exactly one of both is given.
type Rotate struct {
	Pool  string `json:"pool,omitempty"`
	Proxy string `json:"proxy,omitempty"`
}

// Pause stops a pool from adding, replacing, changing and removing members. Its deletion is
// carried out nevertheless, and members whose host cannot run them or is lost still move.
type Pause struct {
	Pool string `json:"pool"`
}

// Resume ends a pause.
type Resume struct {
	Pool string `json:"pool"`
}

// Pin keeps a pool's member from being replaced by age or by a rotation of the whole pool,
// and makes it the last to go when the pool shrinks. A newer template, a drain and its own
// failure still replace it. It is answered by the member's [bus.Record].
type Pin struct {
	Proxy string `json:"proxy"`
}

// Unpin takes a Pin back.
type Unpin struct {
	Proxy string `json:"proxy"`
}

// Codes of refused requests about pools.
const (
	codeNotAMember = "NotAMember" // the proxy is of no pool
	codeFixedSize  = "FixedSize"  // the document gives the size
	codePinned     = "Pinned"
)

func (c Scale) decide(m *Model) (any, *intents.Invalid) {
	return m.orderPool(c.Pool, func(po *pool, next *bus.PoolLedger) *intents.Invalid {
		min, max := next.Accepted.Bounds()
		switch {
		case next.Accepted.Size != nil:
			return &intents.Invalid{Code: codeFixedSize, Field: "size", Message: "the pool's document gives its size: publish one with another size, or with min and max"}
		case c.Size < min || c.Size > max:
			return &intents.Invalid{Code: intents.CodeInvalid, Field: "size", Message: fmt.Sprintf("is not between %d and %d, the pool's min and max", min, max)}
		}
		was := next.Size
		next.Size = c.Size
		m.sayPool(po, "Scaled", bus.Event{Cause: "person", Message: fmt.Sprintf("from %d to %d members", was, c.Size)})
		return nil
	})
}

func (c Rotate) decide(m *Model) (any, *intents.Invalid) {
	switch {
	case (c.Pool == "") == (c.Proxy == ""):
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "pool", Message: "give either a pool or a proxy, its member"}
	case c.Proxy != "":
		return m.orderMember(c.Proxy, func(p *proxy, next *bus.Ledger) *intents.Invalid {
			if next.Pinned {
				return &intents.Invalid{Code: codePinned, Field: "proxy", Message: "it is pinned; unpin it first"}
			}
			next.Rotate = true
			m.sayProxy(p, "RotationAsked", bus.Event{Cause: "person", UID: next.UID, Message: "it is replaced in its turn"})
			return nil
		})
	}
	return m.orderPool(c.Pool, func(po *pool, next *bus.PoolLedger) *intents.Invalid {
		next.RotateBefore = m.now.Truncate(time.Millisecond) // as exact as uids are
		m.sayPool(po, "RotationAsked", bus.Event{Cause: "person", Message: "every member that is not pinned is replaced in its turn"})
		return nil
	})
}

func (c Pause) decide(m *Model) (any, *intents.Invalid) { return m.pause(c.Pool, true) }

func (c Resume) decide(m *Model) (any, *intents.Invalid) { return m.pause(c.Pool, false) }

func (m *Model) pause(name string, paused bool) (any, *intents.Invalid) {
	return m.orderPool(name, func(po *pool, next *bus.PoolLedger) *intents.Invalid {
		if next.Paused == paused {
			return nil
		}
		next.Paused = paused
		reason, message := "Resumed", "members are added, replaced and removed again"
		if paused {
			reason, message = "Paused", "no member is added, replaced or removed until it is resumed"
		}
		m.sayPool(po, reason, bus.Event{Cause: "person", Message: message})
		return nil
	})
}

func (c Pin) decide(m *Model) (any, *intents.Invalid) { return m.pin(c.Proxy, true) }

func (c Unpin) decide(m *Model) (any, *intents.Invalid) { return m.pin(c.Proxy, false) }

func (m *Model) pin(name string, pinned bool) (any, *intents.Invalid) {
	return m.orderMember(name, func(p *proxy, next *bus.Ledger) *intents.Invalid {
		if next.Pinned == pinned {
			return nil
		}
		next.Pinned = pinned
		reason, message := "Unpinned", "rotation may replace it"
		if pinned {
			next.Rotate = false
			reason, message = "Pinned", "no rotation replaces it"
		}
		m.sayProxy(p, reason, bus.Event{Cause: "person", UID: next.UID, Message: message})
		return nil
	})
}

// orderPool changes what is decided for a pool and stores it. What follows from it is
// decided in the same step.
func (m *Model) orderPool(name string, change func(*pool, *bus.PoolLedger) *intents.Invalid) (any, *intents.Invalid) {
	po := m.pools[name]
	if po == nil || !po.stored || po.absent() {
		return nil, notThere("pool", name)
	}
	next := po.ledger
	if bad := change(po, &next); bad != nil {
		return nil, bad
	}
	if next != po.ledger {
		po.ledger = next
		m.commitPool(po)
		m.judgeAll(po)
		m.markPool(po)
	}
	return m.poolRecord(po), nil
}

// orderMember changes what is asked for one member and stores it.
func (m *Model) orderMember(name string, change func(*proxy, *bus.Ledger) *intents.Invalid) (any, *intents.Invalid) {
	p := m.proxies[name]
	switch {
	case p == nil || !p.stored || p.ledger.Accepted == nil || p.ledger.Accepted.Desired == bus.DesiredAbsent:
		return nil, notThere("proxy", name)
	case p.ledger.Pool == "":
		return nil, &intents.Invalid{Code: codeNotAMember, Field: "proxy", Message: fmt.Sprintf("proxy %s is of no pool", name)}
	}
	next := p.ledger
	if bad := change(p, &next); bad != nil {
		return nil, bad
	}
	if next.Pinned != p.ledger.Pinned || next.Rotate != p.ledger.Rotate {
		p.ledger = next
		m.commitLedger(p, nil)
		m.mark(p)
	}
	record, _ := m.record(p)
	return record, nil
}
