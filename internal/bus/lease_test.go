package bus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

const leaseTTL = bus.MinLeaseTTL

func TestOneCandidateHoldsTheLease(t *testing.T) {
	s, f := bustest.Fleet(t)
	ctx := bustest.Context(t)
	a, b := f.NewLease("a", time.Minute), s.Open("other").NewLease("b", time.Minute)
	if err := a.Renew(ctx); !errors.Is(err, bus.ErrLeaseHeld) {
		t.Errorf("renewal before it was acquired: got %v", err)
	}
	if err := a.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := a.Renew(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Acquire(ctx); !errors.Is(err, bus.ErrLeaseHeld) {
		t.Errorf("second candidate: got %v, want ErrLeaseHeld", err)
	}
	if err := b.Release(ctx); err != nil {
		t.Errorf("release of what is not held: %v", err)
	}
	// The same holder after a restart of its process.
	if err := f.NewLease("a", time.Minute).Acquire(ctx); err != nil {
		t.Errorf("acquired again by its holder: %v", err)
	}
	if err := a.Renew(ctx); !errors.Is(err, bus.ErrLeaseHeld) {
		t.Errorf("renewal by the process before: got %v, want ErrLeaseHeld", err)
	}
}

func TestALeaseThatIsNotRenewedExpires(t *testing.T) {
	s, f := bustest.Fleet(t)
	ctx := bustest.Context(t)
	a, b := f.NewLease("a", leaseTTL), s.Open("other").NewLease("b", leaseTTL)
	if err := a.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := b.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	if took < leaseTTL/2 || took > 2*leaseTTL { // the server alone may take two seconds
		t.Errorf("free after %v", took)
	}
	t.Logf("free after %v", took)
	if err := b.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Renew(ctx); !errors.Is(err, bus.ErrLeaseHeld) {
		t.Errorf("renewal by the first holder: got %v, want ErrLeaseHeld", err)
	}
	// What was lost is not released either.
	if err := a.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := f.NewLease("c", leaseTTL).Acquire(ctx); !errors.Is(err, bus.ErrLeaseHeld) {
		t.Errorf("third candidate: got %v, want ErrLeaseHeld", err)
	}
}

func TestAStandbyDoesNotWakeWhileTheLeaseIsRenewed(t *testing.T) {
	s, f := bustest.Fleet(t)
	ctx := bustest.Context(t)
	a, b := f.NewLease("a", leaseTTL), s.Open("other").NewLease("b", leaseTTL)
	if err := a.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.Wait(waiting) }()
	for waiting.Err() == nil {
		if err := a.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		time.Sleep(leaseTTL / 3)
	}
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the end of the context", err)
	}
}

// TestNobodyIsReplacedBecauseTheServerWasAway restarts the server: the leader cannot renew
// for longer than its lease lives, and that is not its fault.
func TestNobodyIsReplacedBecauseTheServerWasAway(t *testing.T) {
	s, f := bustest.Fleet(t)
	ctx := bustest.Context(t)
	const ttl = 2 * leaseTTL                                           // more than a reconnect takes
	a, b := f.NewLease("a", 4*ttl), s.Open("other").NewLease("b", ttl) // the stored lease outlives the outage
	if err := a.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.Wait(ctx) }()
	time.Sleep(ttl / 2)
	s.Stop()
	time.Sleep(ttl * 3 / 4)
	s.Restart()
	bustest.Eventually(t, "a renewal", func() error { return a.Renew(ctx) })
	select {
	case err := <-done:
		t.Errorf("the standby took the outage for the leader's death: %v", err)
	case <-time.After(ttl / 2):
	}
}

func TestAReleasedLeaseWakesTheStandbyAtOnce(t *testing.T) {
	s, f := bustest.Fleet(t)
	ctx := bustest.Context(t)
	a, b := f.NewLease("a", time.Minute), s.Open("other").NewLease("b", time.Minute)
	if err := a.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.Wait(ctx) }()
	select {
	case err := <-done:
		t.Fatalf("woken while it is held: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := a.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := b.Acquire(ctx); err != nil {
		t.Error(err)
	}
}

func TestARenewalWhoseAnswerWasLostCounts(t *testing.T) {
	s, f := bustest.Fleet(t)
	wire := s.Wire()
	nc, js := wire.Connect(t, "leader")
	far, err := bus.Open(bustest.Context(t), nc, js, bus.Names{}, "", bustest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx := bustest.Context(t)
	l := far.NewLease("a", 10*time.Second)
	if err := l.Acquire(ctx); err != nil {
		t.Fatal(err)
	}
	heard := bustest.Follow(t, f, f.Names().LeaseStream(), "").CaughtUp()
	heard.Next()
	wire.Mute()
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := l.Renew(short); err == nil || errors.Is(err, bus.ErrLeaseHeld) {
		t.Errorf("renewal without an answer: got %v", err)
	}
	heard.Next() // it was stored
	wire.Heal()
	bustest.Eventually(t, "the next renewal", func() error {
		err := l.Renew(ctx)
		if errors.Is(err, bus.ErrLeaseHeld) {
			t.Fatal(err)
		}
		return err
	})
	if err := f.NewLease("b", time.Minute).Acquire(ctx); !errors.Is(err, bus.ErrLeaseHeld) {
		t.Errorf("another candidate: got %v, want ErrLeaseHeld", err)
	}
}
