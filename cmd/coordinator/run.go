package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/oklog/run"
	"go.opentelemetry.io/otel"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator"
	"proxyfleet/internal/program"
)

type runCmd struct{ configPath }

// Run leads or stands by until a signal ends it.
func (c runCmd) Run(ctx context.Context) (err error) {
	cfg, err := loadConfig(c.Config)
	if err != nil {
		return err
	}
	log, err := program.Logger(cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	stopTracing, err := startTracing()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTracing()) }()
	return runCoordinator(ctx, cfg, log, "run "+`"coordinator bootstrap --config `+c.Config+`"`)
}

// startTracing has the whole program's spans exported where the environment says so.
func startTracing() (stop func() error, err error) {
	provider, stop, err := program.Tracing(program.About("proxyfleet-coordinator", ""))
	if err == nil {
		otel.SetTracerProvider(provider)
	}
	return stop, err
}

// runCoordinator connects, opens the fleet and runs a coordinator until ctx ends. bootstrap
// says how a fleet that is not there is made.
func runCoordinator(ctx context.Context, cfg config, log *slog.Logger, bootstrap string, opts ...nats.Option) error {
	nc, js, err := connect(cfg, log, opts...)
	if err != nil {
		return err
	}
	defer nc.Close()
	fleet, err := coordinator.Open(ctx, nc, js, bus.Names{Root: cfg.Root}, cfg.Installation, log)
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, bus.ErrNotBootstrapped):
		return fmt.Errorf("%w: to make a new fleet, %s once; if there was one, find out where its streams went before that", err, bootstrap)
	case errors.Is(err, bus.ErrWrongInstallation):
		return fmt.Errorf("%w: look at installation in the configuration, and at the server it names", err)
	case err != nil:
		return err
	}
	registry := program.Registry()
	co := coordinator.New(fleet, nc, js, coordinator.Config{LeaseTTL: cfg.Lease, Silence: cfg.Silence, LossDelay: cfg.LossDelay, Version: program.Version()}, log, coordinator.NewMetrics(registry))

	// Both end with ctx; the first that ends takes the other along, in no special order.
	var g run.Group
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := func(error) { cancel() }
	g.Add(func() error { return co.Run(ctx) }, stop)
	if cfg.HTTP.Address != "" {
		l, err := net.Listen("tcp", cfg.HTTP.Address)
		if err != nil {
			return fmt.Errorf("http.address: %w", err)
		}
		log.Info("metrics and health", "address", l.Addr().String())
		g.Add(func() error { return coordinator.Serve(ctx, l, co.Handler(registry)) }, stop)
	}
	return g.Run()
}

func connect(cfg config, log *slog.Logger, opts ...nats.Option) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := bus.Connect(cfg.NATS, "coordinator", log, opts...)
	if err != nil {
		return nil, nil, err
	}
	js, err := bus.JetStream(nc, cfg.NATS)
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

type bootstrapCmd struct {
	configPath
	Replicas int           `default:"1" help:"Replicas of every stream and bucket: 3 keeps what was acked through the loss of a server (default: ${default})."`
	MaxHosts int           `default:"10000" help:"Hosts at most (default: ${default})."`
	MaxBytes int64         `default:"1073741824" help:"Size of each stream at most, in bytes (default: ${default})."`
	Remake   string        `placeholder:"STREAM" help:"Make this one stream anew, which was lost, and keep the others. docs/recover.md says what is lost with it."`
	Timeout  time.Duration `default:"30s" help:"Longest time to wait for NATS (default: ${default})."`
}

// Run makes an installation and says how to go on.
func (c bootstrapCmd) Run(ctx context.Context) error {
	cfg, err := loadConfig(c.Config)
	if err != nil {
		return err
	}
	log, err := program.Logger(cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	nc, js, err := connect(cfg, log)
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := connected(ctx, nc); err != nil {
		return err
	}
	names := bus.Names{Root: cfg.Root}
	opts := bus.BootstrapOptions{ID: cfg.Installation, Replicas: c.Replicas, MaxHosts: c.MaxHosts, MaxBytes: c.MaxBytes}
	if c.Remake != "" {
		return c.remake(ctx, js, names, opts)
	}
	inst, err := bus.Bootstrap(ctx, js, names, opts)
	if err != nil {
		return err
	}
	if _, err = fmt.Printf("installation %s is there; write it into the configuration of every coordinator:\n\ninstallation: %s\n", inst.ID, inst.ID); err != nil {
		return err
	}
	made, err := js.Stream(ctx, names.Assignments())
	if err != nil {
		return err
	}
	if n := made.CachedInfo().Config.Replicas; n != c.Replicas {
		_, err = fmt.Printf("\nIts streams were made before and stay as they are: --replicas %d, not %d as asked. That is chosen when a fleet is made.\n", n, c.Replicas)
	}
	return err
}

func (c bootstrapCmd) remake(ctx context.Context, js jetstream.JetStream, names bus.Names, opts bus.BootstrapOptions) error {
	inst, err := bus.Remake(ctx, js, names, c.Remake, opts)
	if err != nil {
		return err
	}
	next := "start the coordinators again"
	if c.Remake == names.Assignments() {
		next += "; the fleet is frozen until you ask for recover, see docs/recover.md"
	}
	_, err = fmt.Printf("stream %s of installation %s is there again, empty; %s\n", c.Remake, inst.ID, next)
	return err
}

// connected waits until nc is.
func connected(ctx context.Context, nc *nats.Conn) error {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for !nc.IsConnected() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("NATS could not be reached: %w", errors.Join(ctx.Err(), nc.LastError()))
		case <-t.C:
		}
	}
	return nil
}
