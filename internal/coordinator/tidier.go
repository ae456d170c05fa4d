package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"proxyfleet/internal/bus"
)

// tidier removes states that have served, beside the decisions and in their order. What it
// does not get to is found again by the next leader.
type tidier struct {
	remove func(context.Context, bus.Msg) error
	log    *slog.Logger
	wake   chan struct{} // capacity 1

	mu    sync.Mutex // guards the field that follows
	queue []bus.Msg
}

func newTidier(leader *bus.Leader, log *slog.Logger) *tidier {
	return &tidier{remove: leader.RemoveState, log: log, wake: make(chan struct{}, 1)}
}

// add never blocks.
func (t *tidier) add(states ...bus.Msg) {
	t.mu.Lock()
	t.queue = append(t.queue, states...)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run ends with ctx, or when the lead is lost.
func (t *tidier) run(ctx context.Context) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, 10*time.Second
	for {
		state, ok := t.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-t.wake:
			}
			continue
		}
		err := t.remove(ctx, state)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, bus.ErrFenced):
			return err
		case err != nil:
			t.log.Warn("a state could not be removed; it is tried again", "subject", state.Subject, "err", err)
			sleep(ctx, wait.NextBackOff())
		default:
			wait.Reset()
			t.mu.Lock()
			t.queue = t.queue[1:]
			t.mu.Unlock()
		}
	}
}

// next is what to remove now; it stays in the queue until it is done.
func (t *tidier) next() (bus.Msg, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return bus.Msg{}, false
	}
	return t.queue[0], true
}
