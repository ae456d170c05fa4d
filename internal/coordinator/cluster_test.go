package coordinator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator"
	"proxyfleet/internal/coordinator/fleettest"
)

// TestAFleetOutlivesAStorm is the storm on a small fleet: three servers and three
// coordinators in this process, each coordinator behind a wire to a server of its own. The
// leader is frozen by cutting its wire. (In e2e it is a process, and stopped.)
func TestAFleetOutlivesAStorm(t *testing.T) {
	c := bustest.StartCluster(t)
	nc, js := c.Connect("people")
	if _, err := bus.Bootstrap(bustest.Context(t), js, bus.Names{}, bus.BootstrapOptions{Replicas: 3, MaxBytes: bustest.MaxBytes}); err != nil {
		t.Fatal(err)
	}
	type replica struct {
		*coordinator.Coordinator
		wire *bustest.Wire
	}
	var replicas []replica
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for n := range 3 {
		name := fmt.Sprintf("c%d", n)
		wire := c.Wire(n)
		nc, js := wire.Connect(t, name, func(o *nats.Options) error { o.IgnoreDiscoveredServers = true; return nil })
		f, err := bus.Open(bustest.Context(t), nc, js, bus.Names{}, "", bustest.Log(t))
		if err != nil {
			t.Fatal(err)
		}
		co := coordinator.New(f, nc, js, coordinator.Config{Holder: name}, bustest.Log(t), nil)
		wg.Go(func() {
			if err := co.Run(ctx); err != nil {
				t.Errorf("coordinator %s: %v", name, err)
			}
		})
		replicas = append(replicas, replica{co, wire})
	}
	t.Cleanup(func() { cancel(); wg.Wait() }) // before their connections are closed
	stage := &fleettest.Stage{T: t, Cluster: c, NC: nc, JS: js, Intents: 20, Pools: 2, Size: 10, Drained: 2, Patience: time.Minute}
	for n := range 6 {
		name := fmt.Sprintf("h%d", n)
		nc, js := c.Connect("agent-" + name)
		link := bus.OpenHost(nc, js, bus.Names{}, name, bustest.Log(t))
		t.Cleanup(link.Close)
		stage.Hosts = append(stage.Hosts, fleettest.StartHost(t, link, name, fmt.Sprintf("z%d", n%2)))
	}
	stage.Freeze = func() (thaw func()) {
		for {
			for _, r := range replicas {
				if r.Role() == coordinator.Leading {
					r.wire.Cut()
					return r.wire.Heal
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	stage.Storm()
}
