//go:build real

package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// TestTheAPIAsTheNATSCLIShowsIt asks with the real CLI, and plays what docs/api.md says.
func TestTheAPIAsTheNATSCLIShowsIt(t *testing.T) {
	f := newFleet(t, "")
	f.startAgent("sim-1", simAgent)
	f.publish("crawl-1", goodIntent)
	f.awaitPhase("crawl-1", bus.PhaseRunning, 30*time.Second)

	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"the list of services", []string{"micro", "ls"}, []string{"fleet-api"}},
		{"what the service says of itself", []string{"micro", "info", "fleet-api"},
			[]string{"The leader answers", "term-1", "fleet.api.apply", "fleet.api.remove-host", "Stores an intent", `"spec"`}},
		{"what a host's agent knows", []string{"req", "--raw", "fleet.host.sim-1.instances", ""}, []string{`"crawl-1"`}},
		{"its statistics", []string{"micro", "stats", "fleet-api"}, []string{"apply", "describe", "stranded"}},
		{"an error with its field", []string{"req", "fleet.api.apply", `{"name":"a","spec":{"prot":1}}`}, []string{"UnknownField", "spec.prot"}},
		{"a description with events in order", []string{"req", "--raw", "fleet.api.describe", "crawl-1"}, []string{`"Placed"`, `"Running"`}},
		{"a watch until it ends", []string{"req", "--raw", "--wait-for-empty", "--reply-timeout", "10s", "--timeout", "20s", "fleet.api.watch", `{"seconds": 2}`}, []string{`"crawl-1"`}},
		{"events of a proxy", []string{"sub", "--stream", "FLEET_EVENTS", "--all", "--count", "2", "fleet.event.proxy.crawl-1"}, []string{`"Placed"`, `"Running"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := f.in(t).nats(c.args...)
			if err != nil {
				t.Fatal(err)
			}
			for at, want := range c.want {
				i := strings.Index(out, want)
				if i < 0 {
					t.Errorf("it lacks %q:\n%s", want, out)
				}
				if at > 0 && c.args[0] == "sub" && i < strings.Index(out, c.want[at-1]) {
					t.Errorf("%q comes too early:\n%s", want, out)
				}
			}
			if strings.Contains(out, `"right"`) {
				t.Errorf("it shows the password:\n%s", out)
			}
		})
	}
	t.Run("every request that the documentation shows is understood", func(t *testing.T) {
		page, err := os.ReadFile("../docs/api.md")
		if err != nil {
			t.Fatal(err)
		}
		lines := regexp.MustCompile(`(?m)^nats req (fleet\.api\.\S+)\s+('[^']*'|\S+)`).FindAllStringSubmatch(string(page), -1)
		if len(lines) < 25 {
			t.Fatalf("%d requests only", len(lines))
		}
		for _, l := range lines {
			out, err := f.in(t).nats("req", "--raw", l[1], strings.Trim(l[2], "'"))
			if err != nil {
				t.Fatal(err)
			}
			var bad struct{ Code, Field string }
			if json.Unmarshal([]byte(out), &bad) != nil || bad.Code == "UnknownField" || bad.Code == "Malformed" {
				t.Errorf("%s: %s", l[0], out)
			}
		}
	})
}
