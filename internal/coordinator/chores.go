package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// chores look after the consumers of hosts, beside the decisions: in order for one host,
// for several hosts at once.
type chores struct {
	fleet *bus.Fleet
	send  func(input)
	log   *slog.Logger
	limit chan struct{} // taken while a request is on its way
	start chan struct{} // something is in idle

	mu   sync.Mutex // guards the fields that follow
	work map[string][]core.Command
	busy map[string]bool
	idle []string // hosts that have work and nobody who does it
}

// maxChores is how many requests may be on their way at once.
const maxChores = 16

func newChores(fleet *bus.Fleet, send func(input), log *slog.Logger) *chores {
	return &chores{fleet: fleet, send: send, log: log, limit: make(chan struct{}, maxChores), start: make(chan struct{}, 1),
		work: map[string][]core.Command{}, busy: map[string]bool{}}
}

// add never blocks. What waits already is not added again: hosts repeat what they ask for
// while a chore is tried and tried.
func (c *chores) add(cmd core.Command) {
	host, _ := c.task(cmd)
	c.mu.Lock()
	if w := c.work[host]; len(w) == 0 || w[len(w)-1] != cmd {
		c.work[host] = append(w, cmd)
	}
	if !c.busy[host] {
		c.busy[host] = true
		c.idle = append(c.idle, host)
	}
	c.mu.Unlock()
	select {
	case c.start <- struct{}{}:
	default:
	}
}

func (c *chores) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.start:
		}
		c.mu.Lock()
		hosts := c.idle
		c.idle = nil
		c.mu.Unlock()
		for _, host := range hosts {
			wg.Go(func() { c.serve(ctx, host) })
		}
	}
}

// serve does a host's chores until there are none.
func (c *chores) serve(ctx context.Context, host string) {
	for {
		c.mu.Lock()
		if len(c.work[host]) == 0 {
			delete(c.work, host)
			delete(c.busy, host)
			c.mu.Unlock()
			return
		}
		cmd := c.work[host][0]
		c.work[host] = c.work[host][1:]
		c.mu.Unlock()
		c.repeat(ctx, cmd)
	}
}

const choreTimeout = 10 * time.Second

// repeat tries a chore until it is done.
func (c *chores) repeat(ctx context.Context, cmd core.Command) {
	host, do := c.task(cmd)
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 100*time.Millisecond, 10*time.Second
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case c.limit <- struct{}{}:
		}
		try, cancel := context.WithTimeout(ctx, choreTimeout)
		err := do(try)
		cancel()
		<-c.limit
		if err == nil {
			return
		}
		c.log.Warn("a host's consumer could not be looked after; trying again", "host", host, "what", fmt.Sprintf("%T", cmd), "err", err)
		sleep(ctx, b.NextBackOff())
	}
}

// task is what a command asks for.
func (c *chores) task(cmd core.Command) (host string, do func(context.Context) error) {
	switch cmd := cmd.(type) {
	case core.AdmitHost:
		return cmd.Host, func(ctx context.Context) error { return c.fleet.AdmitHost(ctx, cmd.Host, cmd.As) }
	case core.DismissHost:
		return cmd.Host, func(ctx context.Context) error { return c.fleet.DismissHost(ctx, cmd.Host) }
	case core.UnpinHost:
		return cmd.Host, func(ctx context.Context) error { return c.fleet.UnpinHost(ctx, cmd.Host) }
	case core.ResyncHost:
		return cmd.Host, func(ctx context.Context) error { return c.fleet.ResyncHost(ctx, cmd.Host, cmd.As) }
	case core.AskPulls:
		return cmd.Host, func(ctx context.Context) error {
			pulling, err := c.fleet.HostPulls(ctx, cmd.Host)
			if err == nil {
				c.send(core.Pulls{Host: cmd.Host, Pulling: pulling})
			}
			return err
		}
	}
	panic(fmt.Sprintf("coordinator: no chore is %T", cmd))
}
