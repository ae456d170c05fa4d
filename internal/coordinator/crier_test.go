package coordinator

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator/core"
)

// buffer is written to and read at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestEventsWaitForTheirStreamAndPeopleAreTold(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	n := f.Names()
	if err := js.DeleteStream(bustest.Context(t), n.Events()); err != nil {
		t.Fatal(err)
	}
	var log buffer
	c := newCrier(f, slog.New(slog.NewTextHandler(&log, nil)), NewMetrics(nil))
	c.patience = 0
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.run(ctx) }()
	defer func() { cancel(); <-done }()
	c.say(core.Say{Subject: n.EventProxy("a"), ID: "1", Doc: bus.Event{Type: bus.TypeEvent, Reason: "Placed"}})
	bustest.Eventually(t, "a warning", func() error {
		if got := strings.Count(log.String(), "events cannot be stored"); got != 1 {
			return errors.New(log.String())
		}
		return nil
	})
	if _, err := bus.Remake(bustest.Context(t), js, n, n.Events(), bus.BootstrapOptions{}); err != nil {
		t.Fatal(err)
	}
	bustest.Eventually(t, "the event", func() error {
		events, err := f.EventsOf(bustest.Context(t), n.EventProxy("a"), 10)
		if err == nil && len(events) != 1 {
			err = errors.New("none is there")
		}
		return err
	})
}
