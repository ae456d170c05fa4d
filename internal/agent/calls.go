package agent

import (
	"context"
	"errors"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

// ensure asks the backend for what e wants.
func (d *driver) ensure(ctx context.Context, e entry) {
	ctx, cancel, ok := d.begin(ctx, e, ensureBudget)
	if !ok {
		return
	}
	defer cancel()
	p := d.show()
	d.loop.ensures.run(ctx, func(err error) {
		var inst backends.Instance
		if err == nil {
			var req backends.Request
			if req, err = request(e.Assignment, d.loop.defaults); err == nil {
				inst, err = d.loop.backend.Ensure(ctx, req, p.report)
			}
		}
		p.stop()
		overtaken := errors.Is(ctx.Err(), context.Canceled)
		d.end(cancel, func(o *observed) bool {
			if err != nil && overtaken {
				// Where it stopped is not known, and does not matter: the next call resumes.
				o.Busy, o.Step, o.Percent = false, "", 0
				o.Stale = o.Stale || o.Exists
				return false
			}
			o.ensured(e.Assignment, inst, err, d.loop.policy, time.Now())
			return true
		})
	})
}

// remove carries a tombstone out.
func (d *driver) remove(ctx context.Context, e entry) {
	ctx, cancel, ok := d.begin(ctx, e, deleteBudget)
	if !ok {
		return
	}
	defer cancel()
	p := d.show()
	d.loop.deletes.run(ctx, func(err error) {
		if err == nil {
			err = d.loop.backend.Delete(ctx, ref(e.Assignment))
		}
		p.stop()
		overtaken := errors.Is(ctx.Err(), context.Canceled)
		d.end(cancel, func(o *observed) bool {
			if !d.entry.Assignment.Tombstone() {
				// A newer decision took the tombstone back: begin anew with what is left.
				*o = observed{Stale: true}
				return false
			}
			if err != nil && overtaken {
				o.Busy = false
				return false
			}
			o.deleted(err, d.loop.policy, time.Now())
			return true
		})
	})
}

// read asks the backend what is there.
func (d *driver) read(ctx context.Context, e entry) {
	ctx, cancel, ok := d.begin(ctx, e, readBudget)
	if !ok {
		return
	}
	defer cancel()
	// Cleared before the call: what happens during it needs another look.
	d.mu.Lock()
	d.observed.Stale = false
	d.mu.Unlock()
	d.loop.reads.run(ctx, func(err error) {
		var inst backends.Instance
		if err == nil {
			inst, err = d.loop.backend.Get(ctx, ref(e.Assignment))
		}
		overtaken := errors.Is(ctx.Err(), context.Canceled)
		d.end(cancel, func(o *observed) bool {
			again := o.Stale
			if err != nil && overtaken {
				o.Stale = true
				return false
			}
			o.read(inst, err, d.loop.policy, time.Now())
			o.mended(e.Assignment)
			o.Stale = o.Stale || again
			return true
		})
	})
}

// probe asks the proxy itself.
func (d *driver) probe(ctx context.Context, e entry, o observed) {
	ctx, cancel, ok := d.begin(ctx, e, readBudget)
	if !ok {
		return
	}
	defer cancel()
	d.loop.reads.run(ctx, func(err error) {
		asked := err == nil
		if asked {
			err = d.loop.probe(ctx, o)
		}
		overtaken := errors.Is(ctx.Err(), context.Canceled)
		d.end(cancel, func(o *observed) bool {
			if !asked || err != nil && overtaken {
				return false
			}
			o.probed(err, d.loop.policy, time.Now())
			return true
		})
	})
}

// confirm waits until the server stored that the uid is gone.
func (d *driver) confirm(ctx context.Context, e entry) {
	ctx, cancel, ok := d.begin(ctx, e, flushBudget)
	if !ok {
		return
	}
	defer cancel()
	d.mu.Lock()
	if d.last.Phase != bus.PhaseGone {
		d.publishLocked()
	}
	d.mu.Unlock()
	err := d.loop.out.stored(ctx, e.Assignment.Proxy, e.Assignment.UID)
	d.end(cancel, func(o *observed) bool {
		o.Stored = err == nil && d.entry.Seq == e.Seq
		if err != nil {
			o.RetryAt = time.Now().Add(d.loop.policy.RetryMin)
		}
		return false
	})
}
