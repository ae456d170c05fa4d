//go:build real

package e2e

import (
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// simIntent is an intent whose simulated instance behaves as the script says.
func simIntent(name, desired, script string) string {
	return `{"name":"` + name + `","desired":"` + desired + `","spec":{"allowFrom":["10.0.0.0/8"],"cloudInit":"#cloud-config\n#sim ` + script + `\n"}}`
}

// TestNATSMayGoAwayInEveryPhase kills the server while a proxy is in each phase, leaves it
// down for a while, and expects that everything goes on as if nothing had been.
func TestNATSMayGoAwayInEveryPhase(t *testing.T) {
	f := newFleet(t, "always")
	f.startAgent("sim-1", simAgent+"intervals: {retryMin: 200ms}\n")
	outage := func() {
		f.server.kill()
		time.Sleep(2 * time.Second)
		f.startNATS()
	}
	steps := []struct {
		name    string
		desired string
		script  string
		during  bus.Phase // the phase that the server goes away in
		after   bus.Phase
	}{
		{"creating", "running", "slow=1500ms", bus.PhaseProvisioning, bus.PhaseRunning},
		{"waiting for an address", "running", "no-address=1500ms", bus.PhaseProvisioning, bus.PhaseRunning},
		{"failing", "running", "ensure-error=Permanent times=1", bus.PhaseFailed, bus.PhaseFailed},
		{"running", "running", "steps=1", bus.PhaseRunning, bus.PhaseRunning},
		{"stopped", "stopped", "steps=1", bus.PhaseStopped, bus.PhaseStopped},
		{"deleting", "absent", "slow-delete=1500ms", bus.PhaseDeleting, ""},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			if s.desired == "absent" {
				f.publish("crawl-1", simIntent("crawl-1", "running", s.script))
				f.awaitPhase("crawl-1", bus.PhaseRunning, 20*time.Second)
				f.publish("crawl-1", `{"name":"crawl-1","desired":"absent"}`)
			} else {
				f.publish("crawl-1", simIntent("crawl-1", s.desired, s.script))
			}
			was := f.await("crawl-1", 20*time.Second, string(s.during), func(r bus.Record) bool { return r.Phase == s.during })
			outage()
			if s.after == "" {
				f.awaitNoTrace("crawl-1", 60*time.Second)
				return
			}
			is := f.awaitPhase("crawl-1", s.after, 60*time.Second)
			if s.during != bus.PhaseFailed && is.UID != was.UID {
				t.Errorf("uid %s was replaced by %s", was.UID, is.UID)
			}
		})
	}
}
