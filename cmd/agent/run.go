package main

import (
	"context"
	"errors"
	"syscall"

	"github.com/oklog/run"

	"proxyfleet/internal/agent"
	"proxyfleet/internal/program"
)

type runCmd struct{ configPath }

// Run works until a signal or the agent ends it. The order does not matter: the agent
// itself stops its loop before it closes the backend, and never touches what runs.
func (c runCmd) Run(ctx context.Context) (err error) {
	cfg, err := agent.Load(c.Config)
	if err != nil {
		return err
	}
	log, err := program.Logger(cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	telemetry, err := newTelemetry(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, telemetry.close()) }()
	a, err := agent.Open(cfg, agent.Options{Log: log, Version: program.Version(), Context: faults(log),
		Tracer: telemetry.tracer, Meter: telemetry.meter})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()

	var g run.Group
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g.Add(func() error { return a.Run(ctx) }, func(error) { stop() })
	g.Add(run.SignalHandler(ctx, syscall.SIGINT, syscall.SIGTERM))
	if cfg.HTTP.Address != "" {
		serve, interrupt, err := serveHTTP(cfg.HTTP.Address, telemetry.metrics, a, log)
		if err != nil {
			return err
		}
		g.Add(serve, interrupt)
	}
	err = g.Run()
	if errors.Is(err, run.ErrSignal) {
		log.Info("told to stop; proxies keep running", "signal", err)
		return nil
	}
	return err
}
