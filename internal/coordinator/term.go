package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// term is what a leader works with, from its fence to the loss of the lead.
type term struct {
	c         *Coordinator
	lease     *bus.Lease
	replica   *replica
	send      func(input)
	inventory *inventory
	crier     *crier
	chores    *chores
	tidier    *tidier
	leader    *bus.Leader
	api       *api
}

func (c *Coordinator) newTerm(leader *bus.Leader, lease *bus.Lease, rep *replica, send func(input), log *slog.Logger) *term {
	t := &term{c: c, lease: lease, replica: rep, send: send, leader: leader,
		inventory: newInventory(c.fleet.Names(), leader, c.js, c.cfg.Audit, log, c.metrics),
		crier:     newCrier(c.fleet, log, c.metrics),
		chores:    newChores(c.fleet, send, log),
		tidier:    newTidier(leader, log),
	}
	t.api = newAPI(c, leader, t.inventory, send, log)
	return t
}

// run leads until the lead is lost or ctx ends.
func (t *term) run(outer context.Context) error {
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	c := t.c
	g := newGroup(ctx, cancel)
	// The lease first: whatever ends a term, it is the last to know that we lead.
	g.add("lease", func(ctx context.Context) error { return c.renew(ctx, t.lease) })
	g.add("beats", func(ctx context.Context) error {
		return c.fleet.Beats(ctx, func(host string, b bus.Beat) { t.send(core.Beat{Host: host, Doc: b}) })
	})
	g.add("clock", func(ctx context.Context) error { return c.tick(ctx, t.send) })
	g.add("usage", func(ctx context.Context) error { return c.watchUsage(ctx, t.send) })
	g.add("inventory", t.inventory.run)
	g.add("events", t.crier.run)
	g.add("chores", t.chores.run)
	g.add("tidier", t.tidier.run)
	g.add("reconnects", func(ctx context.Context) error {
		return c.reconnects(ctx, func() { t.send(reconnected{}) })
	})
	g.add("api", t.api.run)
	g.add("", func(ctx context.Context) error { return watch(ctx, t.replica.auditReturns) })
	err := g.Run()
	if err == nil && outer.Err() == nil {
		err = errors.New("a part of it ended by itself")
	}
	return err
}

func (c *Coordinator) renew(ctx context.Context, lease *bus.Lease) error {
	t := time.NewTicker(c.cfg.LeaseTTL / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		// A renewal that fails is tried again: what keeps two leaders apart is the fence.
		if err := lease.Renew(ctx); errors.Is(err, bus.ErrLeaseHeld) {
			return err
		} else if err != nil && ctx.Err() == nil {
			c.log.Warn("the lease could not be renewed; trying again", "err", err)
		}
	}
}

// reconnects calls f after each reconnect.
func (c *Coordinator) reconnects(ctx context.Context, f func()) error {
	connected := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(connected)
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-connected:
			if !ok {
				return nats.ErrConnectionClosed
			}
			f()
		}
	}
}

func (c *Coordinator) tick(ctx context.Context, send func(input)) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			send(core.Tick{})
		}
	}
}

const usageEvery = 10 * time.Second

// watchUsage tells the model when streams are so full that only deletions may come.
func (c *Coordinator) watchUsage(ctx context.Context, send func(input)) error {
	n := c.fleet.Names()
	for ctx.Err() == nil {
		full, ok := "", true
		for _, stream := range []string{n.Intents(), n.Assignments(), n.States()} {
			used, err := c.fleet.Usage(ctx, stream)
			ok = ok && err == nil
			if used >= bus.UsageAlarm && full == "" {
				full = fmt.Sprintf("stream %s is over %.0f %% full", stream, 100*bus.UsageAlarm)
			}
			c.metrics.usage.WithLabelValues(stream).Set(used)
		}
		if ok || full != "" {
			send(core.Usage{Full: full})
		}
		sleep(ctx, usageEvery)
	}
	return nil
}
