package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"proxyfleet/internal/agent"
	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/sim"
	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator"
)

// fleet is a server, with coordinators and agents as a test wants them.
type fleet struct {
	t      *testing.T
	server *bustest.Server
}

// coordinate runs a coordinator until stop is called.
func (f *fleet) coordinate(holder string) (co *coordinator.Coordinator, stop func()) {
	f.t.Helper()
	nc, js := f.server.Connect(holder)
	opened, err := bus.Open(bustest.Context(f.t), nc, js, bus.Names{}, "", bustest.Log(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	co = coordinator.New(opened, nc, js, coordinator.Config{Holder: holder, LeaseTTL: time.Second}, bustest.Log(f.t), nil)
	return co, f.run(co.Run)
}

// agent runs one with a machine of its own until stop is called. Both have the same name.
func (f *fleet) agent(stateDir string) (a *agent.Agent, stop func()) {
	f.t.Helper()
	cfg, err := agent.Parse(fmt.Appendf(nil, "host: {name: kvm-1}\nstateDir: %s\nbackend: {type: sim}\nprobe: {disabled: true}\nnats: {url: %q}\nintervals: {beat: 1s}\n", stateDir, f.server.URL()))
	if err != nil {
		f.t.Fatal(err)
	}
	world := sim.NewWorld()
	a, err = agent.Open(cfg, agent.Options{Log: bustest.Log(f.t), OpenBackend: func(cfg agent.Config, o backends.Owner, log *slog.Logger) (backends.Backend, error) {
		return sim.New(sim.Config{}, sim.Options{Owner: o, Log: log, World: world, Host: cfg.HostConfig})
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	end := f.run(a.Run)
	stop = sync.OnceFunc(func() {
		end()
		if err := a.Close(); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(stop)
	return a, stop
}

func (f *fleet) run(do func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, bus.ErrStreamRegressed) {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}
