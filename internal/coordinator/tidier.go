package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// tidier removes messages that are not needed any more, beside the decisions and in their
// order. What it does not get to is found again by the next leader.
//
// A server that is killed may forget removals that it acked, whatever its sync_interval: it
// writes them to disk a little later (seen on nats-server 2.15.3). So those of the last
// minutes are repeated after each reconnect; the second time is harmless.
type tidier struct {
	remove func(context.Context, core.Command) error
	log    *slog.Logger
	wake   chan struct{} // capacity 1

	mu     sync.Mutex // guards the fields that follow
	queue  []core.Command
	recent []removal // the oldest first
}

type removal struct {
	what core.Command
	at   time.Time
}

// forgetful is how long a server may take to write a removal: the longest sync_interval
// that it has by default, and some more.
const forgetful = 5 * time.Minute

func newTidier(leader *bus.Leader, log *slog.Logger) *tidier {
	return &tidier{log: log, wake: make(chan struct{}, 1), remove: func(ctx context.Context, c core.Command) error {
		switch c := c.(type) {
		case core.Retire:
			return leader.Retire(ctx, c.Assign, c.State)
		case core.ForgetLedger:
			return leader.ForgetLedger(ctx, c.Entry)
		}
		panic(fmt.Sprintf("coordinator: nothing is tidied by %T", c))
	}}
}

// add never blocks.
func (t *tidier) add(cmds ...core.Command) {
	t.mu.Lock()
	t.queue = append(t.queue, cmds...)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// again repeats what a server that was killed may have forgotten.
func (t *tidier) again() {
	t.mu.Lock()
	var cmds []core.Command
	for _, r := range t.recent {
		cmds = append(cmds, r.what)
	}
	t.recent = nil
	t.mu.Unlock()
	t.add(cmds...)
}

// run ends with ctx, or when the lead is lost.
func (t *tidier) run(ctx context.Context) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 100*time.Millisecond, 10*time.Second
	for {
		c, ok := t.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-t.wake:
			}
			continue
		}
		err := t.remove(ctx, c)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, bus.ErrFenced):
			return err
		case err != nil:
			t.log.Warn("could not be tidied up; it is tried again", "what", fmt.Sprintf("%T", c), "err", err)
			sleep(ctx, wait.NextBackOff())
		default:
			wait.Reset()
			t.done(c, time.Now())
		}
	}
}

// next is what to remove now; it stays in the queue until it is done.
func (t *tidier) next() (core.Command, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return nil, false
	}
	return t.queue[0], true
}

func (t *tidier) done(c core.Command, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = t.queue[1:]
	t.recent = append(t.recent, removal{c, now})
	old := 0
	for old < len(t.recent) && now.Sub(t.recent[old].at) > forgetful {
		old++
	}
	t.recent = t.recent[old:]
}
