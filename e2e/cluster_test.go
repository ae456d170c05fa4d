//go:build real

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator/fleettest"
)

// TestAFleetOfAThousandOutlivesAStorm has three servers and three coordinators that are
// processes, fifty simulated hosts and a thousand proxies. The leader is frozen by SIGSTOP.
func TestAFleetOfAThousandOutlivesAStorm(t *testing.T) {
	c := bustest.StartClusterOf(t, func(t testing.TB, n bustest.Node) func() {
		conf := filepath.Join(n.StoreDir, "nats.conf")
		if err := os.WriteFile(conf, []byte(n.Config()), 0o600); err != nil {
			t.Fatal(err)
		}
		return start(t, nil, tool(t, "PROXYFLEET_NATS_SERVER"), "-c", conf).kill
	})
	nc, js := c.Connect("people")
	var urls []string
	for n := range 3 {
		urls = append(urls, c.URL(n))
	}
	config := filepath.Join(t.TempDir(), "coordinator.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "nats: {url: '%s'}\nlog: {level: warn}\n", strings.Join(urls, ",")), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRun(t, program(t, "coordinator"), "bootstrap", "--config", config, "--replicas", "3", "--max-hosts", "100", "--max-bytes", "67108864")
	coordinators := map[int]*proc{}
	for range 3 {
		p := start(t, nil, program(t, "coordinator"), "run", "--config", config)
		coordinators[p.cmd.Process.Pid] = p
	}

	stage := &fleettest.Stage{T: t, Cluster: c, NC: nc, JS: js, Intents: 500, Pools: 10, Size: 50, Drained: 10, Patience: 2 * time.Minute}
	for n := range 50 {
		name := fmt.Sprintf("h%d", n)
		nc, js := c.Connect("agent-" + name)
		link := bus.OpenHost(nc, js, bus.Names{}, name, bustest.Log(t))
		t.Cleanup(link.Close)
		stage.Hosts = append(stage.Hosts, fleettest.StartHost(t, link, name, fmt.Sprintf("z%d", n%3)))
	}
	stage.Freeze = func() (thaw func()) {
		pid := stage.LeaderPID()
		leader := coordinators[pid]
		if leader == nil {
			t.Fatalf("the leader is process %d, none of ours", pid)
		}
		if err := leader.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		return func() { _ = leader.cmd.Process.Signal(syscall.SIGCONT) }
	}
	stage.Storm()
}
