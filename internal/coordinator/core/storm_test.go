package core

import (
	"fmt"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// commits counts decisions about proxies, and the admissions and resyncs of hosts.
func commits(out []Command, names bus.Names) (decisions, chores int) {
	for _, c := range out {
		switch c := c.(type) {
		case Commit:
			if at, _ := names.Parse(c.Writes[0].Subject); at.Class == "proxy" {
				decisions++
			}
		case AdmitHost, ResyncHost, UnpinHost:
			chores++
		}
	}
	return decisions, chores
}

// TestTenHostsThatAreLostAndReturnAreNoStorm has 200 proxies on ten of thirty hosts. None
// moves but by its turn while they are lost, and nothing moves, is placed or is delivered
// again because they return, all in one step.
func TestTenHostsThatAreLostAndReturnAreNoStorm(t *testing.T) {
	const lost, rest, proxies, turns = 10, 20, 200, 7
	w := newWorld()
	w.cfg.MovesPerTick = turns
	w.model = New(w.cfg)
	var silent, alive []string
	for n := range lost {
		silent = append(silent, fmt.Sprintf("old-%02d", n))
	}
	for n := range rest {
		alive = append(alive, fmt.Sprintf("new-%02d", n))
	}
	publish := func(names []string) {
		for _, name := range names {
			h := w.host(name)
			h.Offer.Capacity = bus.Capacity{VCPUs: -1, MemoryMiB: -1, DiskGiB: -1, Slots: -1}
			w.settle(w.publishHost(name, h))
		}
	}
	w.settle(CaughtUp{})
	publish(silent)
	for n := range proxies {
		name := fmt.Sprintf("crawl-%03d", n)
		w.settle(Message(w.store(w.cfg.Names.IntentProxy(name), []byte(intentText(name, "")))))
	}
	publish(alive)

	moved, steps := 0, 0
	for w.now.Before(start.Add(time.Hour)) && moved < proxies {
		n, _ := commits(w.pass(time.Second, alive...), w.cfg.Names)
		if n > turns {
			t.Fatalf("%d proxies moved within a second, %d may", n, turns)
		}
		if moved += n; n > 0 {
			steps++
		}
	}
	if want := (proxies + turns - 1) / turns; moved != proxies || steps != want {
		t.Errorf("%d proxies moved within %d seconds, want %d within %d", moved, steps, proxies, want)
	}

	var back []Event
	for _, name := range silent {
		h := w.host(name)
		back = append(back, Beat{name, bus.Beat{HostID: h.HostID, Session: h.Session}})
	}
	out := w.settle(back...)
	for range 60 {
		out = append(out, w.pass(time.Second, append(alive, silent...)...)...)
	}
	if decisions, chores := commits(out, w.cfg.Names); decisions > 0 || chores > 0 {
		t.Errorf("%d decisions and %d chores because hosts returned, want none", decisions, chores)
	}
}

// TestAHostThatHadWhatTheLeaderHasNotReadIsNoSetback has beats come through while the leader
// cannot read what it stored, as where the network has parted.
func TestAHostThatHadWhatTheLeaderHasNotReadIsNoSetback(t *testing.T) {
	w := newWorld()
	h := w.host("kvm-1")
	w.settle(CaughtUp{})
	w.settle(w.publishHost("kvm-1", h))
	w.mute = true
	w.settle(Message(w.store(w.cfg.Names.IntentProxy("crawl-1"), []byte(intentText("crawl-1", "")))))
	if w.written == 0 || len(w.echo) == 0 {
		t.Fatal("nothing was decided")
	}
	frozen := func(seq uint64) bool {
		for range 3 {
			for _, c := range w.settle(Beat{"kvm-1", bus.Beat{Type: bus.TypeBeat, HostID: h.HostID, Session: h.Session, Seq: seq}}) {
				if a, ok := c.(Alarm); ok && a.Reason == "Frozen" {
					return true
				}
			}
		}
		return false
	}
	if frozen(w.written) {
		t.Error("its own assignment counts as one that these streams never held")
	}
	w.mute = false
	w.settle()
	if frozen(w.written) {
		t.Error("its own assignment, which it has read, counts as one that these streams never held")
	}
	if !frozen(w.written + 1000) {
		t.Error("one that was never stored is not noticed")
	}
}
