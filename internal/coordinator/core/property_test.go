package core

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"proxyfleet/internal/bus"
)

// TestWhateverHappensTheFleetConverges plays random histories (intents good and bad, hosts
// that come, change, fall silent and fail, takeovers at any moment) and holds after every
// step: one live assignment at most for a name, no host beyond its capacity. In the end
// the hosts answer, and everything is as asked or says why it waits.
func TestWhateverHappensTheFleetConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fleet{world: newWorld(), t: t}
		f.step(CaughtUp{})
		names := []string{"a", "b", "c", "d", "e"}
		hosts := []string{"h1", "h2", "h3"}
		name := func() string { return rapid.SampledFrom(names).Draw(t, "name") }
		host := func() string { return rapid.SampledFrom(hosts).Draw(t, "host") }
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { f.invariants() },
			"intent": func(t *rapid.T) {
				doc := bus.Intent{Name: name(), Desired: rapid.SampledFrom([]bus.Desired{bus.DesiredRunning, bus.DesiredStopped, bus.DesiredAbsent}).Draw(t, "desired")}
				doc.Spec.AllowFrom = []string{rapid.SampledFrom([]string{"10.0.0.0/8", "192.0.2.0/24"}).Draw(t, "from")}
				doc.Spec.Image = rapid.SampledFrom([]string{"", "debian-13", "debian-12", "none"}).Draw(t, "image")
				doc.Spec.MachineType = rapid.SampledFrom([]string{"", "small", "big"}).Draw(t, "type")
				if rapid.Bool().Draw(t, "pinned") {
					doc.Spec.Placement.Host = host()
				}
				f.step(Message(f.store(f.cfg.Names.IntentProxy(doc.Name), bus.Encode(doc))))
			},
			"bad intent": func(*rapid.T) {
				f.step(Message(f.store(f.cfg.Names.IntentProxy(name()), []byte(`{"nonsense":true}`))))
			},
			"host": func(t *rapid.T) {
				n := host()
				h := f.host(n)
				h.Offer.Capacity = bus.Capacity{VCPUs: 8, MemoryMiB: 16384, DiskGiB: -1, Slots: 2}
				h.Offer.DefaultDiskGiB = rapid.IntRange(1, 2).Draw(t, "disk")
				f.step(f.publishHost(n, h))
			},
			"answer": func(*rapid.T) { f.answer(host(), "") },
			"fail": func(t *rapid.T) {
				f.answer(host(), rapid.SampledFrom([]string{codeNoCapacity, codePermanent, codeConflict, codeHostFault, "Transient"}).Draw(t, "code"))
			},
			"silence":  func(*rapid.T) { f.silence(host()) },
			"beat":     func(*rapid.T) { f.beat(host()) },
			"time":     func(*rapid.T) { f.now = f.now.Add(90 * time.Second); f.step(Tick{}) },
			"takeover": func(*rapid.T) { f.sameWarm(); f.takeover() },
			"foreign": func(*rapid.T) {
				if live := f.live(name()); len(live) > 0 {
					f.step(Message(f.store(live[0], []byte(`{"desired":"absent"}`))))
				}
			},
			"settled": func(*rapid.T) { f.settle() },
		})
		f.converge(hosts, names)
	})
}

// sameWarm holds that a standby, which has seen everything that was ever stored, decides as
// a model does that reads what is stored now.
func (f *fleet) sameWarm() {
	cold := New(f.cfg)
	cold.Step(Input{Now: f.now, Events: f.everything()})
	caughtUp := Input{Now: f.now, Events: []Event{CaughtUp{}}}
	want, got := cold.Step(caughtUp), f.standby().Step(caughtUp)
	if diff := gocmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)); diff != "" {
		f.t.Fatalf("a standby decides otherwise than one that reads anew (-anew +standby):\n%s", diff)
	}
}

// fleet is a world whose hosts answer.
type fleet struct {
	*world
	t *rapid.T
}

// live are the subjects of a name's assignments that are no tombstones.
func (f *fleet) live(name string) []string {
	var out []string
	for subject, msg := range f.stored {
		at, _ := f.cfg.Names.Parse(subject)
		if at.Kind != "assign" || at.Proxy != name {
			continue
		}
		if a, _ := bus.Decode[bus.Assignment](msg.Data); !a.Tombstone() {
			out = append(out, subject)
		}
	}
	slices.Sort(out)
	return out
}

func (f *fleet) invariants() {
	taken := map[string]bus.Capacity{}
	for subject, msg := range f.stored {
		at, _ := f.cfg.Names.Parse(subject)
		if at.Kind != "ledger" || at.Class != "proxy" {
			continue
		}
		l, err := bus.Decode[bus.Ledger](msg.Data)
		if err != nil {
			f.t.Fatalf("ledger of %s: %v", at.Name, err)
		}
		if l.UID != "" {
			c := taken[l.Host]
			c.Slots++
			c.VCPUs += l.Shape.VCPUs
			taken[l.Host] = c
		}
		for _, r := range l.Retired {
			if r.UID == l.UID {
				f.t.Fatalf("%s: uid %s is bound and retired", l.Name, r.UID)
			}
		}
		live := f.live(l.Name)
		if len(live) > 1 {
			f.t.Fatalf("%s lives more than once: %v", l.Name, live)
		}
	}
	for host, c := range taken {
		if c.Slots > 2 || c.VCPUs > 8 {
			f.t.Fatalf("host %s is beyond its capacity: %+v", host, c)
		}
	}
}

// answer lets a host do what its assignments say, or fail at it.
func (f *fleet) answer(host, code string) {
	var events []Event
	for subject, msg := range f.stored {
		at, _ := f.cfg.Names.Parse(subject)
		if at.Kind != "assign" || at.Host != host {
			continue
		}
		a, err := bus.Decode[bus.Assignment](msg.Data)
		if err != nil || a.UID != at.UID || a.HostID != f.host(host).HostID {
			continue
		}
		s := bus.State{Phase: bus.PhaseRunning, Generation: a.Generation}
		switch {
		case a.Tombstone():
			s.Phase = bus.PhaseGone
		case code != "":
			s.Phase, s.Error = bus.PhaseFailed, &bus.Error{Code: code, Message: "made up"}
		case a.Desired == bus.DesiredStopped:
			s.Phase = bus.PhaseStopped
		}
		events = append(events, f.publishState(host, a.Proxy, a.UID, s))
	}
	f.step(events...)
}

func (f *fleet) silence(host string) {
	f.now = f.now.Add(21 * time.Second)
	for _, c := range f.step(Tick{}) {
		if ask, ok := c.(AskPulls); ok {
			f.step(Pulls{ask.Host, ask.Host != host})
		}
	}
}

func (f *fleet) beat(host string) {
	h := f.host(host)
	f.step(Beat{host, bus.Beat{HostID: h.HostID, Session: h.Session}})
}

// converge lets everything heal, and looks whether it did.
func (f *fleet) converge(hosts, names []string) {
	for range 8 {
		f.now = f.now.Add(time.Hour)
		for _, h := range hosts {
			if _, known := f.hosts[h]; known {
				f.beat(h)
				f.answer(h, "")
			}
		}
		f.settle(Tick{})
	}
	f.invariants()
	for _, name := range names {
		if err := f.converged(name); err != nil {
			f.t.Fatal(err)
		}
	}
	before := f.shown()
	for _, c := range f.takeover() {
		switch c.(type) {
		case Commit, Retire:
			f.t.Fatalf("a takeover decides anew: %+v", c)
		}
	}
	if after := f.shown(); after != before {
		f.t.Fatalf("a takeover shows another inventory:\n%s\n%s", before, after)
	}
}

// shown is the inventory of proxies without the reasons for waiting: of several reasons
// the first is shown, and it may have been found at another time.
func (f *fleet) shown() string {
	return regexp.MustCompile(`"waiting":"[^"]*"`).ReplaceAllString(fmt.Sprint(f.model.put[Proxies], f.model.put[Endpoints]), "")
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
