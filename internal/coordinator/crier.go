package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

const (
	// maxEvents bounds what waits to be published. Events are news: the oldest go first.
	maxEvents = 50_000
	// eventBatch is how many are published together.
	eventBatch = 256
)

// crier publishes events in their order, beside the decisions that they tell of. It waits a
// moment for more, so that those that belong together cost one round trip.
type crier struct {
	fleet   *bus.Fleet
	log     *slog.Logger
	metrics *Metrics
	wakeUp  chan struct{}
	// patience is how long storing an event may take before people are told.
	patience time.Duration

	mu    sync.Mutex // guards the fields that follow
	queue []bus.EventWrite
	lost  int
}

func newCrier(fleet *bus.Fleet, log *slog.Logger, metrics *Metrics) *crier {
	return &crier{fleet: fleet, log: log, metrics: metrics, wakeUp: make(chan struct{}, 1), patience: 10 * time.Second}
}

func (c *crier) say(s core.Say) {
	c.mu.Lock()
	if len(c.queue) >= maxEvents {
		c.queue = c.queue[1:]
		c.lost++
	}
	c.queue = append(c.queue, bus.EventWrite{Subject: s.Subject, ID: s.ID, Event: s.Doc})
	c.mu.Unlock()
	select {
	case c.wakeUp <- struct{}{}:
	default:
	}
}

// next takes what is to be published together.
func (c *crier) next() []bus.EventWrite {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost > 0 {
		c.log.Warn("events were dropped: they came faster than they could be published", "dropped", c.lost)
		c.metrics.eventsLost.Add(float64(c.lost))
		c.lost = 0
	}
	n := min(len(c.queue), eventBatch)
	events := c.queue[:n:n]
	c.queue = c.queue[n:]
	return events
}

func (c *crier) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wakeUp:
		}
		sleep(ctx, settle)
		for events := c.next(); len(events) > 0 && ctx.Err() == nil; events = c.next() {
			for _, e := range events {
				c.note(e.Event)
			}
			c.publish(ctx, events)
		}
	}
}

// publish repeats events until they are stored or ctx ends. It says so once where that takes
// longer than a server's restart.
func (c *crier) publish(ctx context.Context, events []bus.EventWrite) {
	began, said := time.Now(), false
	for ctx.Err() == nil {
		err := c.fleet.PublishEvents(ctx, events)
		if err == nil {
			return
		}
		if !said && time.Since(began) >= c.patience {
			c.log.Warn("events cannot be stored; they wait, and are tried until they are", "stream", c.fleet.Names().Events(), "err", err)
			c.metrics.alarms.WithLabelValues("EventsNotStored").Inc()
			said = true
		}
		sleep(ctx, time.Second)
	}
}

// note logs an event.
func (c *crier) note(e bus.Event) {
	attrs := []any{"event", e.Reason}
	for _, a := range [][2]string{{"proxy", e.Proxy}, {"host", e.Host}, {"uid", e.UID}, {"field", e.Field}} {
		if a[1] != "" {
			attrs = append(attrs, a[0], a[1])
		}
	}
	c.log.Info(e.Message, attrs...)
}
