package bus_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/bus/natsd"
)

// BenchmarkThreeHops measures the raw way of an intent to the state that answers it:
// intent → coordinator → assignment → agent → state, without any decision on the way.
func BenchmarkThreeHops(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync_always=%v", sync), func(b *testing.B) { threeHops(b, sync) })
	}
}

func threeHops(b *testing.B, sync bool) {
	s := bustest.StartWith(b, natsd.Config{SyncAlways: sync})
	s.Bootstrap()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	coord, person, agent := s.Open("coordinator"), s.Open("person"), s.Host("h1")
	if err := coord.AdmitHost(ctx, "h1", bus.Admission{}); err != nil {
		b.Fatal(err)
	}
	n := coord.Names()
	leader := bustest.Lead(b, coord, "a")
	ready := make(chan struct{}, 3)
	caught := func() { ready <- struct{}{} }
	go coord.Follow(ctx, n.Intents(), "", func(m bus.Msg) error {
		p, _ := n.Parse(m.Subject)
		uid := bus.NewULID()
		return leader.Commit(ctx, []bus.Write{
			{Subject: n.Ledger("proxy", p.Name), Data: bus.Encode(bus.Ledger{Name: p.Name, UID: uid, IntentSeq: m.Seq})},
			{Subject: n.Assign("h1", p.Name, uid), Data: bus.Encode(bus.Assignment{Proxy: p.Name, UID: uid, IntentSeq: m.Seq})},
		})
	}, caught)
	go agent.Assignments(ctx, func(ds []bus.Delivery) error {
		for _, d := range ds {
			agent.PutState(bus.State{Proxy: d.Proxy, UID: d.UID, Phase: bus.PhaseRunning, Generation: d.Doc.IntentSeq}, nil)
		}
		return nil
	})
	running := make(chan string, 1)
	go coord.Follow(ctx, n.States(), "", func(m bus.Msg) error {
		p, _ := n.Parse(m.Subject)
		running <- p.Proxy
		return nil
	}, caught)
	<-ready
	<-ready
	bustest.Eventually(b, "the agent pulls", func() error {
		if ok, err := coord.HostPulls(ctx, "h1"); !ok || err != nil {
			return fmt.Errorf("pulls: %v %v", ok, err)
		}
		return nil
	})
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("p%d", i)
		start := time.Now()
		if _, err := person.PublishIntent(ctx, n.IntentProxy(name), make([]byte, 600)); err != nil {
			b.Fatal(err)
		}
		if got := <-running; got != name {
			b.Fatalf("got %s, want %s", got, name)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
