package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// Open opens a fleet, and keeps trying while NATS cannot be reached, saying so. What
// trying cannot mend ends it: a fleet that is not bootstrapped, another installation.
func Open(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, names bus.Names, id string, log *slog.Logger) (*bus.Fleet, error) {
	said := ""
	return backoff.Retry(ctx, func() (*bus.Fleet, error) {
		try, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		f, err := bus.Open(try, nc, js, names, id, log)
		if err == nil {
			return f, nil
		}
		if errors.Is(err, bus.ErrNotBootstrapped) || errors.Is(err, bus.ErrWrongInstallation) || errors.Is(err, nats.ErrConnectionClosed) {
			return nil, backoff.Permanent(err)
		}
		reason := err.Error()
		if !nc.IsConnected() {
			reason = "not connected"
			if last := nc.LastError(); last != nil {
				reason = last.Error()
			}
		}
		if reason != said {
			log.Warn("NATS cannot be used yet; it is tried until it can", "reason", reason)
			said = reason
		}
		return nil, err
	}, backoff.WithBackOff(openBackOff()), backoff.WithMaxElapsedTime(0))
}

const openTimeout = 10 * time.Second

func openBackOff() backoff.BackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 5*time.Second
	return b
}
