//go:build real

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// another starts one more coordinator of the fleet. more is added to its configuration.
func (f *fleet) another(name, more string) *proc {
	f.t.Helper()
	cfg := f.file(name+".yaml", "nats: {url: '"+f.url+"'}\n"+more)
	return start(f.t, nil, program(f.t, "coordinator"), "run", "--config", cfg)
}

// said waits until a process has said something after it had said what was given.
func (p *proc) said(what string, within time.Duration) {
	p.t.Helper()
	eventually(p.t, within, func() error {
		if !strings.Contains(p.output(), what) {
			return fmt.Errorf("%s has not said %q", p.name, what)
		}
		return nil
	})
}

// many publishes intents, as fast as they are taken, and does not wait for them to run.
func (f *fleet) many(prefix string, count int) {
	f.t.Helper()
	for n := range count {
		name := fmt.Sprintf("%s-%d", prefix, n)
		doc := fmt.Sprintf(`{"name":%q,"spec":{"allowFrom":["10.0.0.0/8"]}}`, name)
		if _, err := f.js.PublishAsync(f.names.IntentProxy(name), []byte(doc), jetstream.WithStallWait(10*time.Second)); err != nil {
			f.t.Fatal(err)
		}
	}
	select {
	case <-f.js.PublishAsyncComplete():
	case <-time.After(30 * time.Second):
		f.t.Fatal("the intents were not stored")
	}
}

// coordinatorLease is the default: what is faster did not wait for it.
const coordinatorLease = 1500 * time.Millisecond

// TestAnotherLeadsSoonAfterALeaderIsKilled has a fleet that is not small, and counts from the
// death of its leader to the next proxy that runs.
func TestAnotherLeadsSoonAfterALeaderIsKilled(t *testing.T) {
	const proxies = 3000
	f := newFleet(t, "")
	f.startAgent("sim-1", simAgent)
	f.many("crawl", proxies)
	for n := range proxies {
		f.awaitPhase(fmt.Sprintf("crawl-%d", n), bus.PhaseRunning, 60*time.Second)
	}
	second := f.another("second", "")
	second.said("standing by until", 20*time.Second)

	for _, c := range []struct {
		name   string
		end    func(*proc)
		within time.Duration
	}{
		{"killed", (*proc).kill, 3 * time.Second},
		{"stopped", (*proc).stop, coordinatorLease},
	} {
		leader, next := f.coordinator, second
		if c.name == "stopped" {
			leader, next = second, f.another("third", "")
			next.said("standing by until", 20*time.Second)
		}
		c.end(leader)
		began := time.Now()
		f.many("after-"+c.name, 1)
		f.awaitPhase("after-"+c.name+"-0", bus.PhaseRunning, 20*time.Second)
		took := time.Since(began)
		t.Logf("%s with %d proxies: the next proxy runs after %v", c.name, proxies, took)
		if took > c.within {
			t.Errorf("the leader was %s: the next proxy runs after %v, want within %v:\n%s", c.name, took, c.within, next.output())
		}
	}
}

// TestALeaderThatWasFrozenWritesNothing stops a leader with SIGSTOP while it decides, has
// another one lead, and lets it go on: it has more to decide by then, and its lease says that
// it leads.
func TestALeaderThatWasFrozenWritesNothing(t *testing.T) {
	f := newFleet(t, "")
	f.coordinator.kill()
	old := f.another("old", "lease: 5m\n") // it does not look for long, so it has to be refused
	f.startAgent("sim-1", simAgent)
	f.many("before", 20)
	f.awaitPhase("before-19", bus.PhaseRunning, 30*time.Second)

	f.many("crawl", 100)
	if err := old.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := f.another("next", "")
	next.said("INF leading", 20*time.Second)
	f.many("after", 100) // the frozen one hears of these as well, when it goes on
	for n := range 20 {
		f.publish(fmt.Sprintf("before-%d", n), fmt.Sprintf(`{"name":"before-%d","desired":"absent"}`, n))
	}
	for n := range 100 {
		f.awaitPhase(fmt.Sprintf("crawl-%d", n), bus.PhaseRunning, 60*time.Second)
		f.awaitPhase(fmt.Sprintf("after-%d", n), bus.PhaseRunning, 60*time.Second)
	}
	for n := range 20 {
		f.awaitNoTrace(fmt.Sprintf("before-%d", n), 60*time.Second)
	}
	before := f.quiet()

	if err := old.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	old.said("another coordinator leads; standing by", 20*time.Second)
	if !strings.Contains(old.output(), bus.ErrFenced.Error()) { // a batch of decisions, or of the inventory
		t.Errorf("it was not refused when it went on:\n%s", old.output())
	}
	if after := f.quiet(); after != before {
		t.Errorf("the streams ended at %s before it went on, and at %s after", before, after)
	}
	// It is as good a standby as any.
	next.kill()
	f.publish("last", strings.ReplaceAll(goodIntent, "crawl-1", "last"))
	f.awaitPhase("last", bus.PhaseRunning, 20*time.Second)
}

// quiet waits until nothing is stored any more that a leader writes, and returns where the
// streams and buckets end.
func (f *fleet) quiet() string {
	f.t.Helper()
	was, since := "", time.Now()
	eventually(f.t, 60*time.Second, func() error {
		is := ""
		for _, stream := range []string{f.names.Assignments(), f.names.States(), "KV_" + f.names.Proxies(), "KV_" + f.names.Hosts(), "KV_" + f.names.Endpoints(), "KV_" + f.names.Pools()} {
			s, err := f.js.Stream(f.t.Context(), stream)
			if err != nil {
				return err
			}
			is += fmt.Sprintf(" %s %d", filepath.Base(stream), s.CachedInfo().State.LastSeq)
		}
		if is != was {
			was, since = is, time.Now()
		}
		if time.Since(since) < 2*time.Second {
			return fmt.Errorf("something is still written: %s", is)
		}
		return nil
	})
	return was
}
