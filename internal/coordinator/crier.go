package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// maxEvents bounds what waits to be published. Events are news: the oldest go first.
const maxEvents = 50_000

// crier publishes events, one after another, beside the decisions that they tell of.
type crier struct {
	fleet   *bus.Fleet
	log     *slog.Logger
	metrics *Metrics
	wakeUp  chan struct{}

	mu    sync.Mutex // guards the fields that follow
	queue []core.Say
	lost  int
}

func newCrier(fleet *bus.Fleet, log *slog.Logger, metrics *Metrics) *crier {
	return &crier{fleet: fleet, log: log, metrics: metrics, wakeUp: make(chan struct{}, 1)}
}

func (c *crier) say(s core.Say) {
	attrs := []any{"event", s.Doc.Reason}
	for _, a := range [][2]string{{"proxy", s.Doc.Proxy}, {"host", s.Doc.Host}, {"uid", s.Doc.UID}, {"field", s.Doc.Field}} {
		if a[1] != "" {
			attrs = append(attrs, a[0], a[1])
		}
	}
	c.log.Info(s.Doc.Message, attrs...)
	c.mu.Lock()
	if len(c.queue) >= maxEvents {
		c.queue = c.queue[1:]
		c.lost++
	}
	c.queue = append(c.queue, s)
	c.mu.Unlock()
	select {
	case c.wakeUp <- struct{}{}:
	default:
	}
}

func (c *crier) next() (s core.Say, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost > 0 {
		c.log.Warn("events were dropped: they came faster than they could be published", "dropped", c.lost)
		c.metrics.eventsLost.Add(float64(c.lost))
		c.lost = 0
	}
	if len(c.queue) == 0 {
		return core.Say{}, false
	}
	s = c.queue[0]
	c.queue = c.queue[1:]
	return s, true
}

func (c *crier) run(ctx context.Context) error {
	for {
		s, ok := c.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-c.wakeUp:
			}
			continue
		}
		for ctx.Err() == nil {
			err := c.fleet.PublishEvent(ctx, s.Subject, s.ID, s.Doc)
			if err == nil {
				break
			}
			c.log.Debug("an event could not be published; trying again", "err", err)
			sleep(ctx, time.Second)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}
