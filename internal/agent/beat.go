package agent

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
)

// beats gives a sign of life now, and then every interval until ctx ends.
func (a *Agent) beats(ctx context.Context) error {
	for {
		a.noneToResync(ctx)
		a.beat()
		if err := a.record.compact(time.Now()); err != nil {
			a.log.Error("cannot rewrite the record", "error", err)
		}
		if !sleep(ctx, around(a.cfg.Intervals.Beat, a.loop.policy.Spread())) {
			return nil
		}
	}
}

// beat publishes one; without a connection it is lost, which is what it says.
func (a *Agent) beat() {
	if i, ok := a.link.Consumer(); ok {
		if err := a.meet(i); err != nil {
			a.log.Warn("this host takes no assignments", "error", err)
		}
	}
	var states []bus.State
	for _, d := range a.loop.all() {
		if s, ok := d.published(); ok {
			states = append(states, s)
		}
	}
	me := a.id.get()
	_ = a.link.Beat(bus.Beat{
		Type: bus.TypeBeat, HostID: me.HostID, Session: me.Session, Incarnation: me.Incarnation,
		Seq: a.record.highest(), Digest: bus.Digest(states), Resync: me.Resync, Recovery: me.Recovery, Run: a.run, NoConsumer: a.link.NoConsumer(),
	})
}

// noneToResync ends the wish for a resync where there is nothing to deliver, and so no
// delivery that could end it.
func (a *Agent) noneToResync(ctx context.Context) {
	if !a.id.get().Resync {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Intervals.Beat)
	defer cancel()
	if nothing, err := a.link.NothingDelivered(ctx); err != nil || !nothing {
		return
	}
	a.log.Info("nothing is assigned to this host: the record is complete")
	if err := a.id.update(func(w *who) { w.Resync = false }); err != nil {
		a.log.Error("cannot note that the record is complete; it is found out again", "error", err)
	}
}

// reconnected publishes everything again after each reconnect: what was stored may not have
// survived with the server.
func (a *Agent) reconnected(ctx context.Context, nc *nats.Conn) error {
	changes := nc.StatusChanged(nats.CONNECTED)
	defer nc.RemoveStatusListener(changes)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			a.repeatAll()
			a.beat()
		}
	}
}

// first waits for the first contact with the coordinator, so that the installation is known
// before the backend is opened: the marks need it.
func (a *Agent) first(ctx context.Context) bool {
	const look = 20 * time.Millisecond
	for {
		select {
		case <-a.pinned:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(look):
			if i, ok := a.link.Consumer(); ok {
				_ = a.meet(i) // said at every beat
			}
		}
	}
}
