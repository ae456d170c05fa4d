package bus

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Bounds of the delay between attempts.
const (
	retryMin = 50 * time.Millisecond
	retryMax = 2 * time.Second
)

// attempt bounds one request, so that an answer that was lost costs no more than that,
// however long the caller would wait: a request does not end when its connection does.
func attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, apiTimeout)
}

// asking repeats a request that can be repeated until there is an answer or ctx ends: while a
// leader is being elected, what was asked is never answered. Where ctx has no deadline it
// asks once.
func asking[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	for {
		one, cancel := attempt(ctx)
		answer, err := ask(one)
		cancel()
		if _, bounded := ctx.Deadline(); !bounded || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return answer, err
		}
	}
}

// streamOf is js.Stream, asked until there is an answer.
func streamOf(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	return asking(ctx, func(ctx context.Context) (jetstream.Stream, error) { return js.Stream(ctx, name) })
}

// makeStream is js.CreateStream, asked until there is an answer.
func makeStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	return asking(ctx, func(ctx context.Context) (jetstream.Stream, error) { return js.CreateStream(ctx, cfg) })
}

// changeStream is js.UpdateStream, asked until there is an answer.
func changeStream(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) error {
	_, err := asking(ctx, func(ctx context.Context) (jetstream.Stream, error) { return js.UpdateStream(ctx, cfg) })
	return err
}

// attemptOn is attempt for writes that are repeated until their outcome is known: it ends
// as well when nc reconnects, for the answer will not come any more.
func attemptOn(ctx context.Context, nc *nats.Conn) (context.Context, context.CancelFunc) {
	ctx, cancel := attempt(ctx)
	reconnected := nc.StatusChanged(nats.CONNECTED)
	go func() {
		defer nc.RemoveStatusListener(reconnected)
		defer cancel()
		select {
		case <-reconnected:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

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
