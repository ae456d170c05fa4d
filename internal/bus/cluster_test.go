package bus_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// TestDecisionsSurviveTheLossOfAServer stores batches on three servers, stops the one that
// leads the stream while batches are on their way, and lets another coordinator take over.
func TestDecisionsSurviveTheLossOfAServer(t *testing.T) {
	c := bustest.StartCluster(t)
	_, js := c.Connect("test")
	if _, err := bus.Bootstrap(bustest.Context(t), js, bus.Names{}, bus.BootstrapOptions{Replicas: 3, MaxBytes: bustest.MaxBytes}); err != nil {
		t.Fatal(err)
	}
	f := c.Open("a")
	n := f.Names()
	old := bustest.Lead(t, f, "a")
	var wg sync.WaitGroup
	wg.Go(func() { c.StopLeader(js, n.Assignments()) })
	const rounds = 200
	for range rounds {
		if err := old.Commit(bustest.Context(t), ledgers(n, 3)); err != nil {
			t.Fatal(err)
		}
		if err := old.CommitBucket(bustest.Context(t), n.Proxies(), []bus.KVWrite{{Key: "p1", Value: []byte("{}")}, {Key: "p2", Value: []byte("{}")}}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	bustest.Lead(t, c.Open("b"), "b")
	if err := old.Commit(bustest.Context(t), ledgers(n, 3)); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("the leader that was replaced: got %v, want ErrFenced", err)
	}
	if got, want := stored(t, js, n.Assignments()), uint64(4); got != want {
		t.Errorf("%d messages, want %d: the fence and three entries", got, want)
	}
}

// TestParallelBatchesOfOneLeaderAreStoredInTheEnd breaks the rule that one batch is in
// flight: with replicas the server refuses one of two, and the batch is sent again.
func TestParallelBatchesOfOneLeaderAreStoredInTheEnd(t *testing.T) {
	c := bustest.StartCluster(t)
	_, js := c.Connect("test")
	if _, err := bus.Bootstrap(bustest.Context(t), js, bus.Names{}, bus.BootstrapOptions{Replicas: 3, MaxBytes: bustest.MaxBytes}); err != nil {
		t.Fatal(err)
	}
	f := c.Open("a")
	l := bustest.Lead(t, f, "a")
	writes := ledgers(f.Names(), 40)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if err := l.Commit(bustest.Context(t), writes[2*i:2*i+2]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, want := stored(t, js, f.Names().Assignments()), uint64(41); got != want {
		t.Errorf("%d messages, want %d", got, want)
	}
}

// TestABootstrapWaitsForAServerThatIsStillStarting begins it when two of three have started.
func TestABootstrapWaitsForAServerThatIsStillStarting(t *testing.T) {
	late := true
	c := bustest.StartClusterOf(t, func(t testing.TB, n bustest.Node) func() {
		if n.Name == "n2" && late {
			late = false
			return func() {}
		}
		return bustest.Embedded(t, n)
	})
	_, js := c.Connect("test")
	done := make(chan error, 1)
	go func() {
		_, err := bus.Bootstrap(bustest.Context(t), js, bus.Names{}, bus.BootstrapOptions{Replicas: 3, MaxBytes: bustest.MaxBytes})
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("two servers were enough, or it did not wait: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	c.Start(2)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
