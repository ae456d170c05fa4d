package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// DefaultLeaseTTL is the life of a lease where none is configured.
const DefaultLeaseTTL = 1500 * time.Millisecond

// Config are a coordinator's choices. The zero value is good.
type Config struct {
	// Holder names this coordinator among the others. Default: host name and a ULID.
	Holder string
	// LeaseTTL is how long a leader that died is waited for, at least 1 s. Default 1.5 s:
	// another one leads within three seconds, on a busy machine as well.
	LeaseTTL time.Duration
	// Silence, LossDelay, FullFor and Remember: see core.Config.
	Silence, LossDelay, FullFor, Remember time.Duration
	// Audit is how often the inventory is compared with the buckets. Default 5 min.
	Audit time.Duration
	// Version of the program, for the service's info.
	Version string
}

func (c Config) withDefaults() Config {
	if c.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "coordinator"
		}
		c.Holder = host + "-" + bus.NewULID()
	}
	c.LeaseTTL = max(cmp.Or(c.LeaseTTL, DefaultLeaseTTL), bus.MinLeaseTTL)
	c.Audit = cmp.Or(c.Audit, 5*time.Minute)
	c.Version = cmp.Or(c.Version, "0.0.0")
	return c
}

// Coordinator leads a fleet, or stands by.
type Coordinator struct {
	cfg     Config
	fleet   *bus.Fleet
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	metrics *Metrics
	role    atomic.Int32

	watchers *watchers // set by Run
}

// Role is what a coordinator does at the moment.
type Role int32

// The roles, in the order in which they are taken.
const (
	Starting   Role = iota // not running yet, or reading what is stored
	StandingBy             // another one leads; the model is warm
	TakingOver             // has the lease, reads the rest
	Leading                // decides
)

func (r Role) String() string {
	return [...]string{"starting", "standing by", "taking over", "leading"}[r]
}

// New makes a coordinator of an opened fleet. metrics may be nil.
func New(fleet *bus.Fleet, nc *nats.Conn, js jetstream.JetStream, cfg Config, log *slog.Logger, metrics *Metrics) *Coordinator {
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	cfg = cfg.withDefaults()
	return &Coordinator{cfg: cfg, fleet: fleet, nc: nc, js: js, log: log.With("holder", cfg.Holder), metrics: metrics}
}

// Role tells what it does now. It may be called concurrently.
func (c *Coordinator) Role() Role { return Role(c.role.Load()) }

func (c *Coordinator) setRole(r Role) {
	c.role.Store(int32(r))
	c.metrics.role.Set(float64(r))
}

// Run leads whenever it can, until ctx ends (nil), or the streams turn out to be others
// than before (bus.ErrStreamRegressed), which needs a person.
func (c *Coordinator) Run(ctx context.Context) error {
	var err error
	if c.watchers, err = c.hearWatches(); err != nil {
		return err
	}
	defer c.watchers.end()
	lease := c.fleet.NewLease(c.cfg.Holder, c.cfg.LeaseTTL)
	retry := backoff.NewExponentialBackOff()
	retry.InitialInterval, retry.MaxInterval = 100*time.Millisecond, c.cfg.LeaseTTL
	for ctx.Err() == nil {
		c.setRole(Starting)
		began := time.Now()
		err := c.stand(ctx, lease)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, bus.ErrStreamRegressed):
			return fmt.Errorf("stopped before anything could be decided wrongly: %w; nothing was deleted, hosts keep what they run", err)
		case errors.Is(err, bus.ErrLeaseHeld), errors.Is(err, bus.ErrFenced):
			c.log.Info("another coordinator leads; standing by", "reason", err)
			retry.Reset()
		case errors.Is(err, errStale):
			c.log.Info("reading everything anew", "reason", err)
		case errors.Is(err, nats.ErrConnectionClosed):
			return err
		default:
			c.log.Warn("cannot lead; trying again", "err", err)
			if time.Since(began) > time.Minute {
				retry.Reset()
			}
			sleep(ctx, retry.NextBackOff())
		}
	}
	c.setRole(Starting)
	return nil
}

func (c *Coordinator) coreConfig() core.Config {
	return core.Config{
		Names: c.fleet.Names(), Installation: c.fleet.Installation(),
		Silence: c.cfg.Silence, LossDelay: c.cfg.LossDelay, FullFor: c.cfg.FullFor, Remember: c.cfg.Remember,
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
