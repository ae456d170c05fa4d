package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
)

// Budgets bound calls to a backend that does not come back; they are no pace. An Ensure may
// download an image.
const (
	ensureBudget = 2 * time.Hour
	deleteBudget = 30 * time.Minute
	readBudget   = time.Minute
	flushBudget  = time.Minute
)

// driver brings one uid to what is wanted of it. run is its only goroutine; the rest is
// called by others. Lock order: loop.mu or progress.mu, driver.mu, then those of record and
// reporter.
type driver struct {
	loop *loop
	uid  string
	log  *slog.Logger
	wake chan struct{} // capacity 1

	mu       sync.Mutex // guards the fields that follow
	entry    entry
	header   nats.Header // of the assignment: trace context
	observed observed
	cancel   context.CancelFunc // of the call in flight, nil without
	over     bool               // run has ended for good
	last     bus.State          // as last published
}

// assign gives the driver a newer document; a call for the older one ends. false: the
// driver is over, and a new one is needed.
func (d *driver) assign(e entry, header nats.Header) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return false
	}
	both := d.entry.Assignment.Tombstone() && e.Assignment.Tombstone()
	d.entry, d.header = e, header
	d.observed.wanted(e.Assignment)
	if d.cancel != nil && !both {
		d.cancel()
	}
	d.signal()
	return true
}

func (d *driver) woken() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.observed.woken()
	d.signal()
}

func (d *driver) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run acts until ctx ends or the uid is gone and forgotten.
func (d *driver) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		d.mu.Lock()
		e, o := d.entry, d.observed
		d.mu.Unlock()
		act, until := decide(e.Assignment, o, d.loop.policy, time.Now())
		switch act {
		case actWait:
			d.pause(ctx, timer, until)
		case actRead:
			d.read(ctx, e)
		case actEnsure:
			d.ensure(ctx, e)
		case actProbe:
			d.probe(ctx, e, o)
		case actDelete:
			d.remove(ctx, e)
		case actConfirm:
			d.confirm(ctx, e)
		case actForget:
			if err := d.loop.record.retire(e, time.Now()); err != nil {
				d.log.Warn("cannot drop a proxy that is gone from the record; it is dropped at the next start", "error", err)
			}
			if d.loop.forget(d, e) {
				d.log.Info("gone and forgotten")
				return
			}
		}
	}
}

// pause waits for a wake-up, the end, or until (zero: for ever).
func (d *driver) pause(ctx context.Context, timer *time.Timer, until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer.Reset(time.Until(until))
		due = timer.C
	}
	select {
	case <-ctx.Done():
	case <-d.wake:
	case <-due:
	}
}

// begin makes a call's context, which a newer document ends. ok is false when there is one
// already.
func (d *driver) begin(ctx context.Context, e entry, budget time.Duration) (context.Context, context.CancelFunc, bool) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entry.Seq != e.Seq {
		cancel()
		return nil, nil, false
	}
	d.cancel = cancel
	return bus.ExtractTrace(ctx, d.header), cancel, true
}

// end takes a call's outcome by change, which tells whether there is something to publish:
// not after a call that was ended from outside.
func (d *driver) end(cancel context.CancelFunc, change func(o *observed) bool) {
	cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel = nil
	if change(&d.observed) {
		d.publishLocked()
	}
}

// publishLocked sends the state if it differs from the last one.
func (d *driver) publishLocked() {
	s, ok := render(d.entry.Assignment, d.observed)
	if !ok {
		return
	}
	if same(s, d.last) {
		return
	}
	if s.Phase != d.last.Phase {
		attrs := []any{"phase", s.Phase, "was", d.last.Phase, "generation", s.Generation}
		if s.Error != nil {
			attrs = append(attrs, "code", s.Error.Code, "op", s.Error.Op, "err", s.Error.Message)
		}
		d.log.Info("phase", attrs...)
	}
	d.last = d.loop.out.state(s, d.header)
	d.observed.LastPhase = s.Phase
	switch s.Phase {
	case bus.PhaseRunning, bus.PhaseDegraded, bus.PhaseStopped:
		if err := d.loop.record.saw(seen{UID: s.UID, Generation: s.Generation, Phase: s.Phase, Addresses: s.Addresses}); err != nil {
			d.log.Warn("cannot note what was seen", "error", err)
		}
	}
}

// republish sends the last state again, with a new counter: the server may have lost it.
func (d *driver) republish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.Phase != "" {
		d.last = d.loop.out.state(d.last, d.header)
	}
}

// published is the last state, for the digest of a beat.
func (d *driver) published() (bus.State, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, d.last.Phase != ""
}
