package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/oklog/run"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// term leads from the taken lease on, until the lead is lost or ctx ends.
func (c *Coordinator) term(ctx context.Context, lease *bus.Lease) error {
	leader, err := c.fleet.Lead(ctx, c.cfg.Holder)
	if err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	log := c.log.With("term", leader.Term())
	c.metrics.term.Set(float64(leader.Term()))
	log.Info("taking over")

	outer := ctx
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	inputs := make(chan input, inputBuffer)
	send := func(in input) {
		select {
		case inputs <- in:
		case <-ctx.Done():
		}
	}
	inv := newInventory(c.fleet.Names(), leader, c.js, c.cfg.Audit, log, c.metrics)
	cry := newCrier(c.fleet, log, c.metrics)
	cho := newChores(c.fleet, send, log)
	tidy := newTidier(leader, log)
	dec := &decider{
		model: core.New(c.coreConfig()), leader: leader, inputs: inputs, streams: len(c.followed()),
		inventory: inv, crier: cry, chores: cho, tidier: tidy, removals: removals{}, log: log, metrics: c.metrics,
		leads: func() { c.setRole(Leading) },
	}
	api := newAPI(c, inv, send, log)

	var g run.Group
	add := func(what string, f func(context.Context) error) {
		g.Add(func() error {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		}, func(error) { cancel() })
	}
	// The lease first: whatever ends a term, it is the last to know that we lead.
	add("lease", func(ctx context.Context) error { return c.renew(ctx, lease) })
	for _, stream := range c.followed() {
		add("follow "+stream, func(ctx context.Context) error {
			return c.fleet.Follow(ctx, stream, "", func(m bus.Msg) error {
				send(core.Message(m))
				return nil
			}, func() { send(caughtUp{}) })
		})
	}
	add("beats", func(ctx context.Context) error {
		return c.fleet.Beats(ctx, func(host string, b bus.Beat) { send(core.Beat{Host: host, Doc: b}) })
	})
	add("clock", func(ctx context.Context) error { return c.tick(ctx, send) })
	add("usage", func(ctx context.Context) error { return c.watchUsage(ctx, send) })
	add("decide", dec.run)
	add("inventory", inv.run)
	add("events", cry.run)
	add("chores", cho.run)
	add("tidier", tidy.run)
	add("reconnects", func(ctx context.Context) error {
		return c.reconnects(ctx, func() { send(reconnected{}) })
	})
	add("api", api.run)
	err = g.Run()
	if err == nil && outer.Err() == nil {
		err = errors.New("a part of it ended by itself")
	}
	if err != nil {
		log.Info("the term has ended", "reason", err)
	}
	return err
}

// inputBuffer lets followers read on while a batch is in flight.
const inputBuffer = 4096

// followed are the streams that the model is made of.
func (c *Coordinator) followed() []string {
	n := c.fleet.Names()
	return []string{n.Intents(), n.Assignments(), n.States()}
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
	for ctx.Err() == nil {
		full, ok := "", true
		for _, stream := range c.followed() {
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
