package agent

import (
	"slices"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// BenchmarkAssignmentToState is the way from the leader's batch to the stored state of a
// proxy that costs its backend nothing: three hops, one fsync of the record.
func BenchmarkAssignmentToState(b *testing.B) {
	r := newRig(b)
	warm := r.assignment("warm", "")
	r.assign(warm)
	r.phase(warm, bus.PhaseRunning)
	var took []time.Duration
	for b.Loop() {
		a := r.assignment("p", "")
		start := time.Now()
		r.assign(a)
		for {
			s, err := bus.Decode[bus.State](r.states.Next().Data)
			if err != nil {
				b.Fatal(err)
			}
			if s.UID == a.UID {
				if s.Phase != bus.PhaseRunning {
					b.Fatalf("first state is %s, want Running", s.Phase)
				}
				break
			}
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
}
