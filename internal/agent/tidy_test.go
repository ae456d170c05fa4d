package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/sim"
	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// tidierOf tidies up with a function.
type tidierOf func(ctx context.Context) error

func (t tidierOf) Tidy(ctx context.Context) error { return t(ctx) }

func TestABackendTidiesUpAtTheStartAndEveryHourHoweverItGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Minute)
		defer cancel()
		began := time.Now()
		var at []time.Duration
		err := tidy(ctx, tidierOf(func(ctx context.Context) error {
			at = append(at, time.Since(began))
			if len(at) == 2 { // one that hangs
				<-ctx.Done()
			}
			return errors.New("it could not")
		}), slog.New(slog.DiscardHandler))
		want := []time.Duration{0, tidyEvery, 2*tidyEvery + tidyBudget}
		if err != nil || len(at) != 3 || at[0] != want[0] || at[1] != want[1] || at[2] != want[2] {
			t.Errorf("%v; at %v, want %v", err, at, want)
		}
	})
}

func TestAnAgentHasItsBackendTidyUp(t *testing.T) {
	r := bareRig(t)
	r.connectLeader()
	if err := r.fleet.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	tidied := make(chan struct{}, 1)
	a, err := Open(r.cfg, Options{Log: bustest.Log(t), OpenBackend: func(cfg Config, o backends.Owner, log *slog.Logger) (backends.Backend, error) {
		b, err := sim.New(sim.Config{}, sim.Options{Owner: o, Log: log, World: r.world, Host: cfg.HostConfig})
		return struct {
			backends.Backend
			backends.Tidier
		}{b, tidierOf(func(context.Context) error { ask(tidied); return nil })}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	run := &running{Agent: a, cancel: cancel, done: make(chan error, 1)}
	go func() { run.done <- a.Run(ctx); close(run.done) }()
	defer func() { _ = run.end() }()
	select {
	case <-tidied:
	case <-bustest.Context(t).Done():
		t.Error("it was not asked to")
	}
}
