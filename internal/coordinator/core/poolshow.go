package core

import (
	"fmt"
	"strings"
	"time"

	"proxyfleet/internal/bus"
)

// waitText says why a pool is not as it should be, or nothing when it is, or is on its way.
func waitText(po *pool, t terms, o orders) string {
	r := &po.roster
	switch {
	case t.absent:
		return ""
	case o.wait != "":
		return o.wait
	case len(r.sick) > 0 && !t.retry:
		return fmt.Sprintf("%d failed, as %s; the next replacement is tried at %s, after %d in a row",
			len(r.sick), po.failure, po.ledger.RetryAt.Format(time.RFC3339), po.ledger.Failures)
	case r.count[unplaced] > 0:
		return fmt.Sprintf("%d have no host, as %s", r.count[unplaced], po.unplaced)
	case o.create+len(o.retire)+len(o.change) > 0:
		return ""
	case len(r.due) > 0 && r.leaving() > 0 && r.staying() <= t.size:
		return fmt.Sprintf("%d to be replaced, once %d that leave are gone", len(r.due), r.leaving())
	case len(r.due) > 0:
		return fmt.Sprintf("%d to be replaced; %d are ready, and no fewer than %d may be", len(r.due), r.count[ready], t.floor())
	case r.staying() < t.size && r.leaving() > 0:
		return fmt.Sprintf("%d to be added, once %d that leave are gone", t.size-r.staying(), r.leaving())
	case len(r.behind) > 0 && r.changing > 0:
		return fmt.Sprintf("%d to be changed, once %d that were are healthy", len(r.behind), r.changing)
	}
	return unready(r)
}

// unready says what members are that stay and are not ready.
func unready(r *roster) string {
	var parts []string
	for _, l := range []struct {
		life life
		is   string
	}{{coming, "coming up"}, {failed, "failed"}, {weak, "failing their health check"}, {silent, "on silent hosts"}} {
		if n := r.count[l.life]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, l.is))
		}
	}
	return strings.Join(parts, ", ")
}

// showPool brings the record of a pool up to date in the inventory.
func (m *Model) showPool(po *pool) {
	if !po.stored && po.roster.empty() && po.refusal() == nil {
		m.unput(Pools, po.name)
		return
	}
	m.putDoc(Pools, po.name, m.poolRecord(po))
}

// poolRecord is the inventory's view of a pool.
func (m *Model) poolRecord(po *pool) bus.PoolRecord {
	l, r, bad := &po.ledger, &po.roster, po.refusal()
	out := bus.PoolRecord{
		Type: bus.TypePoolRecord, Pool: po.name,
		Accepted: bad == nil, IntentSeq: max(po.intent.seq, l.IntentSeq), Paused: l.Paused,
		Members: r.staying(), Ready: r.count[ready], Failed: r.count[failed], Leaving: r.leaving() + r.count[adrift],
		Waiting: po.wait,
	}
	if bad != nil {
		out.Field, out.Reason = bad.Field, bad.Message
	}
	if l.Accepted == nil {
		return out
	}
	out.Desired = l.Accepted.Desired
	if po.absent() {
		return out
	}
	out.Size = l.Size
	out.Min, out.Max = l.Accepted.Bounds()
	out.MinAvailable = m.terms(po).floor()
	out.Updating = len(r.behind) + r.changing
	for p := range r.due {
		if r.members[p].due.cause == "intent" {
			out.Updating++
		} else {
			out.Rotating++
		}
	}
	po.conditions.choose(m.now, "Available", "Enough", "TooFew", out.Ready >= out.MinAvailable)
	po.conditions.choose(m.now, "Settled", "AsDeclared", "Changing",
		out.Ready == out.Size && out.Members == out.Size && out.Updating+out.Rotating+out.Leaving == 0)
	po.conditions.note(m.now, "BackingOff", backingOff(po, m.now))
	out.Conditions = sorted(po.conditions)
	return out
}

// choose sets a condition with a reason for each status.
func (c *conditions) choose(now time.Time, typ, holds, lacks string, is bool) {
	reason := lacks
	if is {
		reason = holds
	}
	c.set(now, typ, reason, "", is)
}

func backingOff(po *pool, now time.Time) string {
	if po.retryAt(now).IsZero() {
		return ""
	}
	return fmt.Sprintf("%d replacements in a row failed, as %s", po.ledger.Failures, po.failure)
}
