package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
)

// errFrozen keeps assignments of streams that were made anew from being taken or acked.
var errFrozen = errors.New("the streams were made anew; nothing is taken from them until a person accepts that")

// receive records a pull's assignments with one fsync, and hands them to the loop before
// that ends. Nothing is acked when it fails.
func (a *Agent) receive(deliveries []bus.Delivery) error {
	i, ok := a.link.Consumer()
	if !ok {
		return errors.New("assignments without a consumer")
	}
	if err := a.meet(i); err != nil {
		return err
	}
	me, before := a.id.get(), a.record.highest()
	var entries []entry
	var headers []nats.Header
	var seq uint64
	var again []string     // redelivered: somebody may have missed the answer
	at := map[string]int{} // uid → its place in entries: of two in one pull the newer counts
	for _, d := range deliveries {
		seq = max(seq, d.Seq)
		if d.Err != nil {
			a.log.Error("an assignment cannot be read; it is ignored until it is written again", "proxy", d.Proxy, "uid", d.UID, "seq", d.Seq, "err", d.Err)
			a.say(targetAssignments, codeUnreadable, fmt.Sprintf("proxy %s, uid %s: %v", d.Proxy, d.UID, d.Err))
			continue
		}
		if d.Doc == nil {
			continue // the mark of a deleted message: says nothing about an instance
		}
		held, gone := a.recorded(d.UID)
		if n, ok := at[d.UID]; ok {
			held, gone = &entries[n], nil
		}
		if d.Doc.Recovery > me.Recovery {
			return fmt.Errorf("%w (%s)", errRecovered, d.Doc.Recovery)
		}
		v, why := accept(*d.Doc, d.Seq, me, held, gone)
		switch v {
		case ignore:
			if held != nil && d.Seq == held.Seq {
				again = append(again, d.UID)
			}
			if gone != nil { // by streams from before its tombstone: they have not heard of the end
				a.out.state(bus.State{Proxy: d.Proxy, UID: d.UID, Generation: d.Doc.Generation, Phase: bus.PhaseGone}, nil)
			}
		case refuse:
			a.log.Error("an assignment is refused", "reason", why)
			a.say(targetAssignments, codeForeign, why+"; it is refused")
		case take:
			n, ok := at[d.UID]
			if !ok {
				n = len(entries)
				at[d.UID] = n
				entries, headers = append(entries, entry{}), append(headers, nil)
			}
			entries[n], headers[n] = entry{Assignment: *d.Doc, Seq: d.Seq}, traceOf(d.Header)
		}
	}
	err := a.record.put(entries, seq)
	if err == nil {
		// The disk takes its time beside the work. Should the machine lose power before it is
		// done, the assignments were not acked: they come again, and what was made of them is
		// adopted by its mark.
		for n, e := range entries {
			a.loop.assign(e, headers[n], false)
		}
		err = a.record.sync()
	}
	if err != nil {
		a.log.Error("cannot record assignments; they are not acked and come again", "count", len(entries), "error", err)
		return err
	}
	if before > 0 && slices.ContainsFunc(deliveries, func(d bus.Delivery) bool { return d.ConsumerSeq == 1 }) {
		a.repeatAll() // everything is delivered again: something is amiss, and not only with that
		again = nil
	}
	for _, uid := range again {
		a.loop.republish(uid)
	}
	return a.resynced(deliveries)
}

func (a *Agent) recorded(uid string) (*entry, *retired) {
	e, held, gone, was := a.record.known(uid)
	switch {
	case held:
		return &e, nil
	case was:
		return nil, &gone
	}
	return nil, nil
}

// resynced ends the wish for a resync once the consumer has delivered everything from its
// beginning.
func (a *Agent) resynced(deliveries []bus.Delivery) error {
	if !a.id.get().Resync {
		return nil
	}
	for _, d := range deliveries {
		if d.ConsumerSeq == 1 {
			a.fromStart = true
		}
	}
	if !a.fromStart || deliveries[len(deliveries)-1].Pending > 0 {
		return nil
	}
	a.log.Info("the record is complete again")
	return a.id.update(func(w *who) { w.Resync = false })
}

// meet compares the installation behind the consumer with the pinned one, or pins it. With
// another installation the agent stops; with another incarnation it takes nothing.
func (a *Agent) meet(i bus.Installation) error {
	if err := a.id.pin(i); err != nil {
		if errors.Is(err, ErrOtherInstallation) {
			a.stop(err)
		}
		return err
	}
	a.pinnedOnce.Do(func() { close(a.pinned) })
	pinned := a.id.get().Incarnation
	if pinned == i.Incarnation {
		a.say(targetStreams, "", "")
		return nil
	}
	a.repeat(&a.repeated, i.Incarnation)
	a.say(targetStreams, codeIncarnation, fmt.Sprintf("the streams are incarnation %s, this host works for %s: they were lost and made anew, or restored. "+
		"What runs is kept and repaired, nothing new is taken. A recovery of the fleet ends that. For this host alone: stop the agent, run `agent accept-streams %s`, and start it", i.Incarnation, pinned, i.Incarnation))
	return fmt.Errorf("%w (incarnation %s, pinned %s)", errFrozen, i.Incarnation, pinned)
}

// traceOf keeps the trace context of a message's headers.
func traceOf(h nats.Header) nats.Header {
	out := nats.Header{}
	bus.InjectTrace(bus.ExtractTrace(context.Background(), h), out)
	if len(out) == 0 {
		return nil
	}
	return out
}
