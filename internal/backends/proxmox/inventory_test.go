//go:build pve || proxmox_real

package proxmox

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"proxyfleet/internal/backends/proxmox/pve"
)

// slow is a cluster that takes a second to be listed, and counts how often it was.
type slow struct {
	mu    sync.Mutex // guards asked and ended
	asked int
	ended int // by their context
}

func (s *slow) read(ctx context.Context) (pve.Resources, error) {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	select {
	case <-time.After(time.Second):
		return pve.Resources{VMs: []pve.VM{{ID: 100}}}, nil
	case <-ctx.Done():
		s.mu.Lock()
		s.ended++
		s.mu.Unlock()
		return pve.Resources{}, ctx.Err()
	}
}

func TestCallersShareAListingThatIsNewEnoughForAllOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		inv := &inventory{read: s.read}
		began := time.Now()
		var wg sync.WaitGroup
		ask := func() {
			wg.Go(func() {
				called := time.Now()
				snap, err := inv.fresh(t.Context())
				if err != nil || len(snap.vms) != 1 || snap.at.Before(called) {
					t.Errorf("got %+v, %v", snap, err)
				}
			})
		}
		for range 20 {
			ask()
		}
		time.Sleep(500 * time.Millisecond)
		for range 20 { // the one on its way is older than these
			ask()
		}
		wg.Wait()
		if s.asked != 2 || time.Since(began) != 2*time.Second {
			t.Errorf("asked %d times in %v, want 2 times in 2s", s.asked, time.Since(began))
		}
		if _, err := inv.recent(t.Context(), 2*time.Second); err != nil || s.asked != 2 {
			t.Errorf("what is recent was asked for again (%d, %v)", s.asked, err)
		}
		time.Sleep(3 * time.Second)
		if _, err := inv.recent(t.Context(), 2*time.Second); err != nil || s.asked != 3 {
			t.Errorf("what is old was not asked for again (%d, %v)", s.asked, err)
		}
	})
}

func TestACallerThatLeavesEndsTheListingOnlyIfItIsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		inv := &inventory{read: s.read}
		leaving, leave := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer leave()
		stayed := make(chan error, 1)
		go func() {
			_, err := inv.fresh(t.Context())
			stayed <- err
		}()
		synctest.Wait()
		if _, err := inv.fresh(leaving); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if err := <-stayed; err != nil {
			t.Errorf("the one that stayed: %v", err)
		}
		alone, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer end()
		if _, err := inv.fresh(alone); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if s.ended != 1 {
			t.Errorf("%d requests were ended, want the last one's", s.ended)
		}
		if _, err := inv.fresh(t.Context()); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}

func TestAPromiseHoldsUntilTheListingMustShowIt(t *testing.T) {
	var p promises
	now := time.Now()
	others := func(uid string, at time.Time) (n int) {
		t.Helper()
		_ = p.choose(uid, at, func(o []promise) (promise, error) { n = len(o); return promise{}, errors.New("only looking") })
		return n
	}
	if err := p.choose("a", now, func([]promise) (promise, error) { return promise{node: "x"}, nil }); err != nil {
		t.Fatal(err)
	}
	if others("a", now) != 0 || others("b", now.Add(time.Hour)) != 1 {
		t.Error("what is being made is promised to others, and not to itself")
	}
	p.settle("a", true, now)
	if others("b", now.Add(promiseLag/2)) != 1 || others("b", now.Add(2*promiseLag)) != 0 {
		t.Error("what was made is promised for a while")
	}
	_ = p.choose("a", now, func([]promise) (promise, error) { return promise{}, nil })
	p.settle("a", false, now)
	if others("b", now) != 0 {
		t.Error("what was not made is not promised")
	}
}
