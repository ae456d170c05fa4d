package pvefake

import (
	"context"
	"time"
)

// clock is the node's time: real time, speed times as fast.
type clock struct {
	start time.Time
	speed float64
}

func (c clock) now() time.Time {
	return c.start.Add(time.Duration(float64(time.Since(c.start)) * c.speed))
}

// real is how long d of the node's time takes.
func (c clock) real(d time.Duration) time.Duration { return time.Duration(float64(d) / c.speed) }

// sleep waits d of the node's time or for the end of ctx.
func (c clock) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(c.real(d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
