package agent

import (
	"errors"
	"fmt"

	"proxyfleet/internal/bus"
)

var (
	// errAsked keeps an agent from the consumer of another host of its name, while the leader
	// asks who it is.
	errAsked = errors.New("this host waits for its name")
	// errRecovered keeps assignments from being taken or acked that were written after a
	// recovery of the fleet, until the consumer has said that this host is part of it: by the
	// sequences of before they might look old.
	errRecovered = errors.New("the fleet was recovered since, which this host has not heard yet")
)

// admitted judges what this host's consumer says before anything is pulled from it: whether
// it is for this host at all, and whether a person recovered the streams.
func (a *Agent) admitted(i bus.Installation, as bus.Admission) error {
	me := a.id.get()
	if me.Installation != "" && me.Installation != i.ID {
		return fmt.Errorf("%w: %w", bus.ErrRefused, a.meet(i)) // nor is anything said there
	}
	why := as.Refuses(me.HostID)
	a.mu.Lock()
	news := a.refused != why
	a.refused = why
	a.mu.Unlock()
	if why != "" {
		if news { // not as a check: the document of the name's host is not ours to replace
			a.log.Error("this host is refused, and takes nothing; what it runs goes on", "hostId", me.HostID, "reason", why)
		}
		is := bus.ErrRefused
		if as.Asked == me.HostID {
			is = errAsked
			a.repeat(&a.asked, as.Ask)
		}
		return fmt.Errorf("%w: %s; this one is host id %s", is, why, me.HostID)
	}
	if as.Accepts(me.Incarnation, me.Recovery) {
		if err := a.recovered(i, as); err != nil {
			return err
		}
	}
	err := a.meet(i)
	if err == nil {
		a.out.change(func(h *bus.Host) { h.Incarnation = i.Incarnation })
	}
	if as.Asked == me.HostID {
		a.repeat(&a.asked, as.Ask)
	}
	return err
}

// recovered goes over to streams that a person recovered. Sequences begin anew; generations
// still count. They are forgotten first: if it stops in between, it is done again.
func (a *Agent) recovered(i bus.Installation, as bus.Admission) error {
	if err := a.record.restartSequences(); err != nil {
		return fmt.Errorf("accept the recovery %s: %w", as.Recovery, err)
	}
	if err := a.id.update(func(w *who) { w.Incarnation, w.Recovery = i.Incarnation, as.Recovery }); err != nil {
		return fmt.Errorf("accept the recovery %s: %w", as.Recovery, err)
	}
	a.repeat(&a.repeated, as.Recovery)
	a.log.Info("the fleet was recovered; assignments are taken again", "incarnation", i.Incarnation, "recovery", as.Recovery)
	return nil
}

// repeat says everything again, once for each which: a making or recovery of streams, which
// may not have it, or a wish of the leader's. last is where the one before is kept.
func (a *Agent) repeat(last *string, which string) {
	a.mu.Lock()
	again := *last != which
	*last = which
	a.mu.Unlock()
	if again {
		a.repeatAll()
	}
}

func (a *Agent) repeatAll() {
	a.out.again()
	for _, d := range a.loop.all() {
		d.republish()
	}
}
