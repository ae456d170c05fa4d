package core

import (
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"proxyfleet/internal/bus"
)

// TestWhateverHappensTheFleetConverges plays random histories (documents good and bad of
// proxies and pools, people's requests, hosts that come, change, fall silent, are lost and
// fail, crashes and takeovers at any moment) and holds after every step:
//
//   - one live assignment at most for a name;
//   - no host beyond its capacity;
//   - no pool makes a member beyond its maximum and surge;
//   - no pool gives up a healthy member that it needs.
//
// In the end the hosts answer, and everything is as asked or says why it waits; another
// coordinator then has nothing to decide.
func TestWhateverHappensTheFleetConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fleet{world: newWorld(), t: t, everMembers: map[string]bool{}}
		f.step(CaughtUp{})
		for _, h := range hosts[:rapid.IntRange(0, len(hosts)).Draw(t, "hosts")] {
			f.publish(h, 1)
		}
		t.Repeat(map[string]func(*rapid.T){
			"":       func(*rapid.T) { f.invariants() },
			"intent": func(t *rapid.T) { f.step(f.intent(t)) },
			"pool":   func(t *rapid.T) { f.step(f.pool(t)) },
			"bad intent": func(t *rapid.T) {
				f.step(Message(f.store(f.cfg.Names.IntentProxy(pick(t, "name", names)), []byte(`{"nonsense":true}`))))
			},
			"bad pool": func(t *rapid.T) {
				f.step(Message(f.store(f.cfg.Names.IntentPool(pick(t, "pool", pools)), []byte(`{"nonsense":true}`))))
			},
			"request": func(t *rapid.T) { f.step(Request{ID: 1, Ask: ask(t)}) },
			"host": func(t *rapid.T) {
				f.publish(pick(t, "host", hosts), rapid.IntRange(1, 2).Draw(t, "disk"))
			},
			"answer":     func(t *rapid.T) { f.answer(pick(t, "host", hosts), "") },
			"all answer": func(*rapid.T) { f.allAnswer() },
			"go on":      func(*rapid.T) { f.allAnswer(); f.allAnswer() },
			"fail": func(t *rapid.T) {
				f.answer(pick(t, "host", hosts), pick(t, "code", []string{codeNoCapacity, codePermanent, codeConflict, codeHostFault, "Transient", degraded}))
			},
			"silence": func(t *rapid.T) { f.silence(pick(t, "host", hosts)) },
			"beat":    func(t *rapid.T) { f.beat(pick(t, "host", hosts)) },
			"time": func(t *rapid.T) {
				f.now = f.now.Add(pick(t, "by", []time.Duration{time.Second, 90 * time.Second, 10 * time.Minute, 90 * time.Hour}))
				f.step(Tick{})
			},
			"takeover": func(*rapid.T) { f.sameWarm(); f.takeover() },
			"crash": func(t *rapid.T) {
				f.crash(rapid.IntRange(0, 5).Draw(t, "writes"), pick(t, "what", []func(*rapid.T) Event{f.intent, f.pool})(t))
				f.learn()
			},
			"foreign": func(t *rapid.T) {
				if live := f.live(pick(t, "name", names)); len(live) > 0 {
					f.step(Message(f.store(live[0], []byte(`{"desired":"absent"}`))))
				}
			},
			"full": func(t *rapid.T) { f.step(Usage{pick(t, "full", []string{"", "a stream is full"})}) },
		})
		f.converge()
	})
}

var (
	names = []string{"a", "b", "p-1", "p-2", "p-3"} // some are members' as well
	pools = []string{"p", "q"}
	hosts = []string{"h1", "h2", "h3"}
)

const slots = 3 // of a host

func pick[T any](t *rapid.T, label string, from []T) T { return rapid.SampledFrom(from).Draw(t, label) }

func spec(t *rapid.T) (s bus.Spec) {
	s.AllowFrom = []string{pick(t, "from", []string{"10.0.0.0/8", "192.0.2.0/24"})}
	s.Image = pick(t, "image", []string{"", "", "debian-13", "debian-12", "none"})
	s.MachineType = pick(t, "type", []string{"", "small", "big"})
	s.OnHostLoss = pick(t, "loss", []string{"", "wait"})
	return s
}

func (f *fleet) intent(t *rapid.T) Event {
	doc := bus.Intent{Name: pick(t, "name", names), Desired: pick(t, "desired", []bus.Desired{bus.DesiredRunning, bus.DesiredStopped, bus.DesiredAbsent}), Spec: spec(t)}
	if rapid.Bool().Draw(t, "pinned") {
		doc.Spec.Placement.Host = pick(t, "host", hosts)
	}
	return Message(f.store(f.cfg.Names.IntentProxy(doc.Name), bus.Encode(doc)))
}

func (f *fleet) pool(t *rapid.T) Event {
	doc := bus.PoolIntent{Name: pick(t, "pool", pools), Template: spec(t)}
	doc.Desired = pick(t, "desired", []bus.Desired{bus.DesiredRunning, bus.DesiredRunning, bus.DesiredRunning, bus.DesiredAbsent})
	size := rapid.IntRange(0, 4).Draw(t, "size")
	if rapid.Bool().Draw(t, "scaled") {
		doc.Min, doc.Max = size, size+2
	} else {
		doc.Size = &size
	}
	doc.Update.MaxUnavailable = rapid.IntRange(0, 2).Draw(t, "unavailable")
	surge := rapid.IntRange(0, 2).Draw(t, "surge")
	doc.Update.Surge = &surge // with neither the document is refused
	doc.ScaleDown = pick(t, "shrink", []string{"newest", "oldest"})
	doc.Spread.MaxPerHost = rapid.IntRange(0, 2).Draw(t, "spread")
	if rapid.Bool().Draw(t, "rotates") {
		doc.Rotation = &bus.Rotation{MaxAge: "100h"}
	}
	return Message(f.store(f.cfg.Names.IntentPool(doc.Name), bus.Encode(doc)))
}

func ask(t *rapid.T) Ask {
	pool, host, proxy := pick(t, "pool", pools), pick(t, "host", hosts), pick(t, "name", names)
	return pick(t, "ask", []Ask{
		Scale{Pool: pool, Size: rapid.IntRange(0, 6).Draw(t, "to")}, Rotate{Pool: pool}, Rotate{Proxy: proxy},
		Pause{pool}, Resume{pool}, Resume{pool}, Pin{proxy}, Unpin{proxy},
		Cordon{Host: host}, Drain{Host: host}, Uncordon{Host: host}, Uncordon{Host: host}, DeclareLost{Host: host},
	})
}

// sameWarm holds that a standby, which has seen everything that was ever stored, decides as
// a model does that reads what is stored now.
func (f *fleet) sameWarm() {
	cold := New(f.cfg)
	cold.Step(Input{Now: f.now, Events: f.everything()})
	caughtUp := Input{Now: f.now, Events: []Event{CaughtUp{Intents: f.seq["intents"]}}}
	want, got := cold.Step(caughtUp), f.standby().Step(caughtUp)
	if diff := gocmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)); diff != "" {
		f.t.Fatalf("a standby decides otherwise than one that reads anew (-anew +standby):\n%s", diff)
	}
}

// converge lets everything heal, and looks whether it did.
func (f *fleet) converge() {
	f.step(Usage{})
	for range 24 {
		f.now = f.now.Add(time.Hour)
		for _, h := range hosts {
			if _, known := f.hosts[h]; known {
				f.beat(h)
				f.answer(h, "")
			}
		}
		f.settle(Tick{})
		f.learn()
	}
	f.invariants()
	for _, name := range names {
		if err := f.converged(name); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, name := range pools {
		if err := f.poolConverged(name); err != nil {
			f.t.Fatal(err)
		}
	}
	before := f.shown()
	for _, c := range f.takeover() {
		switch c := c.(type) {
		case Commit:
			f.t.Fatalf("a takeover decides anew: %s %s", c.Writes[0].Subject, c.Writes[0].Data)
		case Retire:
			f.t.Fatalf("a takeover decides anew: %+v", c)
		}
	}
	if after := f.shown(); after != before {
		f.t.Fatalf("a takeover shows another inventory:\n%s\n%s", before, after)
	}
}

func (f *fleet) converged(name string) error {
	p := f.model.proxies[name]
	if p == nil || p.ledger.Accepted == nil {
		return nil
	}
	want, live := p.ledger.Accepted, f.live(name)
	r, shown := f.model.record(p)
	switch {
	case want.Desired == bus.DesiredAbsent:
		if len(live) > 0 || shown && r.Accepted {
			return fmt.Errorf("%s is still there: %v %+v", name, live, r)
		}
	case r.Waiting != "":
	case len(live) != 1:
		return fmt.Errorf("%s neither lives nor waits: %+v", name, r)
	case want.Desired == bus.DesiredRunning && r.Phase != bus.PhaseRunning, want.Desired == bus.DesiredStopped && r.Phase != bus.PhaseStopped:
		return fmt.Errorf("%s is wanted %s, shown %+v", name, want.Desired, r)
	}
	return nil
}

func (f *fleet) poolConverged(name string) error {
	po := f.model.pools[name]
	if po == nil || po.ledger.Accepted == nil {
		return nil
	}
	r := f.model.poolRecord(po)
	switch {
	case po.absent():
		return fmt.Errorf("pool %s is still there: %+v", name, r)
	case r.Waiting != "":
	case r.Members != r.Size || r.Ready != r.Size || r.Updating+r.Rotating+r.Leaving+r.Failed != 0:
		return fmt.Errorf("pool %s is neither as declared nor waits: %+v", name, r)
	}
	return nil
}
