package agent

import (
	"net/netip"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

func TestWithoutProbesTheBackendSaysWhetherAProxyServes(t *testing.T) {
	w := bus.Assignment{Generation: 1, Desired: bus.DesiredRunning}
	p := policy{RetryMin: time.Second, RetryMax: time.Minute, Spread: func() float64 { return 0.5 }}
	var o observed
	now := time.Now()
	for _, c := range []struct {
		status backends.Status
		want   bus.Phase
	}{
		{backends.StatusStarting, bus.PhaseProvisioning},
		{backends.StatusRunning, bus.PhaseRunning},
		{backends.StatusStarting, bus.PhaseDegraded}, // it is not ready any more
		{backends.StatusRunning, bus.PhaseRunning},
	} {
		o.read(backends.Instance{Status: c.status, Generation: 1, Port: 3128, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, nil, p, now)
		if s, ok := render(w, o); !ok || s.Phase != c.want {
			t.Fatalf("%s: got %s, want %s", c.status, s.Phase, c.want)
		}
		now = now.Add(time.Second)
	}
}
