package bus

import (
	"context"
	"math/rand/v2"
	"time"
)

// Bounds of the delay between attempts.
const (
	retryMin = 50 * time.Millisecond
	retryMax = 2 * time.Second
)

// retry waits with doubling, jittered delays.
type retry struct{ min, max, next time.Duration }

func newRetry(lo, hi time.Duration) *retry { return &retry{min: lo, max: hi, next: lo} }

func (r *retry) reset() { r.next = r.min }

// delay is the next one: between half and all of a bound that doubles.
func (r *retry) delay() time.Duration {
	d := r.next/2 + rand.N(r.next/2+1)
	r.next = min(2*r.next, r.max)
	return d
}

func (r *retry) wait(ctx context.Context) error {
	t := time.NewTimer(r.delay())
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
