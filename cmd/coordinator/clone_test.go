package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

// cloned is a fleet with two agents of one name.
type cloned struct {
	t      *testing.T
	server *bustest.Server
}

// coordinate runs a coordinator until stop is called.
func (c *cloned) coordinate(holder string) (co *coordinator.Coordinator, stop func()) {
	c.t.Helper()
	nc, js := c.server.Connect(holder)
	fleet, err := bus.Open(bustest.Context(c.t), nc, js, bus.Names{}, "", bustest.Log(c.t))
	if err != nil {
		c.t.Fatal(err)
	}
	co = coordinator.New(fleet, nc, js, coordinator.Config{Holder: holder, LeaseTTL: time.Second}, bustest.Log(c.t), nil)
	return co, c.run(co.Run)
}

// agent runs one with a machine of its own until stop is called. Both have the same name.
func (c *cloned) agent(stateDir string) (a *agent.Agent, stop func()) {
	c.t.Helper()
	cfg, err := agent.Parse(fmt.Appendf(nil, "host: {name: kvm-1}\nstateDir: %s\nbackend: {type: sim}\nprobe: {disabled: true}\nnats: {url: %q}\nintervals: {beat: 1s}\n", stateDir, c.server.URL()))
	if err != nil {
		c.t.Fatal(err)
	}
	world := sim.NewWorld()
	a, err = agent.Open(cfg, agent.Options{Log: bustest.Log(c.t), OpenBackend: func(cfg agent.Config, o backends.Owner, log *slog.Logger) (backends.Backend, error) {
		return sim.New(sim.Config{}, sim.Options{Owner: o, Log: log, World: world, Host: cfg.HostConfig})
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	end := c.run(a.Run)
	stop = sync.OnceFunc(func() {
		end()
		if err := a.Close(); err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(stop)
	return a, stop
}

func (c *cloned) run(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(stop)
	return stop
}

// A clone is refused, whatever it says and whoever leads, and the host keeps its name, its
// proxies and their states.
func TestACloneOfAHostStaysRefusedThroughATakeover(t *testing.T) {
	c := &cloned{t: t, server: bustest.Start(t)}
	c.server.Bootstrap()
	_, js := c.server.Connect("test")
	states := bustest.Follow(t, c.server.Open("look"), bus.Names{}.States(), "")
	_, stopFirst := c.coordinate("first")
	real, _ := c.agent(t.TempDir())
	publish(t, c.server.URL(), "crawl-1")
	before := running(t, c.server.URL(), "crawl-1")
	second, _ := c.coordinate("second")

	clone, stopClone := c.agent(t.TempDir())
	refused := func() error {
		if err := clone.Health(); err == nil || !strings.Contains(err.Error(), real.HostID()) {
			return fmt.Errorf("the clone is well: %v", err)
		}
		return nil
	}
	bustest.Eventually(t, "the clone is refused", refused)
	stands := func() error {
		var h bus.Host
		var s bus.State
		states.Newest(bus.Names{}.StateHost("kvm-1"), func(m bus.Msg) (err error) { h, err = bus.Decode[bus.Host](m.Data); return err })
		states.Newest(bus.Names{}.StateProxy("kvm-1", "crawl-1", before.UID), func(m bus.Msg) (err error) { s, err = bus.Decode[bus.State](m.Data); return err })
		if h.HostID != real.HostID() || s.HostID != real.HostID() || s.Phase != bus.PhaseRunning {
			return fmt.Errorf("stored are %+v and %+v, want those of host id %s", h, s, real.HostID())
		}
		return nil
	}
	if err := stands(); err != nil {
		t.Fatal(err)
	}
	// A restart of the server is when both say everything again.
	c.server.Restart()
	running(t, c.server.URL(), "crawl-1")
	time.Sleep(2 * time.Second)
	if err := stands(); err != nil {
		t.Fatal(err)
	}

	// Its document stands there all the same, and then another one takes over. By the digest
	// of its states the host differs in nothing.
	doc := bus.Encode(bus.Host{Type: bus.TypeHost, HostID: clone.HostID(), Session: 9, Counter: 9, Backend: "sim"})
	if _, err := js.Publish(bustest.Context(t), bus.Names{}.StateHost("kvm-1"), doc); err != nil {
		t.Fatal(err)
	}
	stopFirst()
	bustest.Eventually(t, "the second one leads", func() error {
		if role := second.Role(); role != coordinator.Leading {
			return errors.New(role.String())
		}
		return nil
	})
	bustest.Eventually(t, "the host's own documents are back", stands)
	if after := running(t, c.server.URL(), "crawl-1"); after.UID != before.UID {
		t.Errorf("the proxy was made anew: %+v, was %+v", after, before)
	}
	publish(t, c.server.URL(), "crawl-2") // it is offered again
	if rec := running(t, c.server.URL(), "crawl-2"); rec.Host != "kvm-1" {
		t.Errorf("got %+v", rec)
	}
	if err := errors.Join(refused(), real.Health()); err != nil {
		t.Fatal(err)
	}
	stopClone()
}
