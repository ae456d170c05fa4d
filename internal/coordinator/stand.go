package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/run"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// errStale says that a model has to be read anew.
var errStale = errors.New("what was followed is not what is stored")

func isStale(err error) bool { return errors.Is(err, errStale) }

// stand keeps a model from its first message on: it stands by with it, and leads with it once
// the lease can be taken, for one term. What was decided and not stored dies with the model.
func (c *Coordinator) stand(ctx context.Context, lease *bus.Lease) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inputs := make(chan input, inputBuffer)
	send := func(in input) {
		select {
		case inputs <- in:
		case <-ctx.Done():
		}
	}
	rep := newReplica(c.fleet, send)
	dec := &decider{model: core.New(c.coreConfig()), inputs: inputs, removals: removals{}, requests: map[uint64]*request{}, log: c.log, metrics: c.metrics,
		leads: func() { c.setRole(Leading) }}

	g := newGroup(ctx, cancel)
	g.add("", rep.follow)
	g.add("decide", dec.run)
	g.add("", func(ctx context.Context) error { return c.lead(ctx, lease, rep, send) })
	return g.Run()
}

// inputBuffer lets followers read on while a batch is in flight.
const inputBuffer = 4096

// lead waits for the lease and leads for one term.
func (c *Coordinator) lead(ctx context.Context, lease *bus.Lease, rep *replica, send func(input)) error {
	select {
	case <-ctx.Done():
		return nil
	case <-rep.loaded:
	}
	c.setRole(StandingBy)
	c.log.Info("everything is read; standing by until the lease is free")
	if err := c.standBy(ctx, lease, rep); err != nil {
		return err
	}
	began := time.Now()
	if err := lease.Acquire(ctx); err != nil {
		return err
	}
	c.setRole(TakingOver)
	err := c.takeOver(ctx, lease, rep, send, began)
	if !errors.Is(err, bus.ErrLeaseHeld) {
		// A standby need not wait until the lease expires. ctx may have ended.
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := lease.Release(short); err != nil {
			c.log.Debug("the lease is left to expire", "err", err)
		}
	}
	return err
}

const releaseTimeout = 2 * time.Second

// standBy returns when the lease may be taken, unless the model has to be read anew before.
func (c *Coordinator) standBy(ctx context.Context, lease *bus.Lease, rep *replica) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stale := make(chan error, 1)
	go func() {
		stale <- watch(waiting, rep.audit)
		cancel()
	}()
	err := lease.Wait(waiting)
	cancel()
	if stale := <-stale; stale != nil {
		return stale
	}
	return err
}

// takeOver makes this coordinator the leader, and leads until the lead is lost or ctx ends.
// The fence comes first: what is read behind it is all that earlier leaders could write.
func (c *Coordinator) takeOver(ctx context.Context, lease *bus.Lease, rep *replica, send func(input), began time.Time) error {
	leader, err := c.fleet.Lead(ctx, c.cfg.Holder)
	if err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	log := c.log.With("term", leader.Term())
	c.metrics.term.Set(float64(leader.Term()))
	log.Info("taking over")
	ends, err := rep.catchUp(ctx)
	if err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	if err := rep.audit(ctx); err != nil {
		return fmt.Errorf("take over: %w", err)
	}
	t := c.newTerm(leader, lease, rep, send, log)
	send(caughtUp{t, ends[c.fleet.Names().Intents()]})
	log.Debug("everything is read", "took", time.Since(began))
	err = t.run(ctx)
	if err != nil {
		log.Info("the term has ended", "reason", err)
	}
	return err
}

// group is a run group whose actors end with one context, the first that ends taking the
// others along.
type group struct {
	run.Group
	ctx    context.Context
	cancel context.CancelFunc
}

func newGroup(ctx context.Context, cancel context.CancelFunc) *group {
	return &group{ctx: ctx, cancel: cancel}
}

// add adds an actor. what names it in its error; empty: the error does so itself.
func (g *group) add(what string, f func(context.Context) error) {
	g.Add(func() error {
		err := f(g.ctx)
		switch {
		case err == nil || g.ctx.Err() != nil:
			return nil
		case what == "":
			return err
		}
		return fmt.Errorf("%s: %w", what, err)
	}, func(error) { g.cancel() })
}
