package core

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"pgregory.net/rapid"

	"proxyfleet/internal/bus"
)

// fleet is a world whose hosts answer, and which is looked at after each step.
type fleet struct {
	*world
	t           *rapid.T
	everMembers map[string]bool // names that were ever a pool's
}

// step is the world's, and holds what each step must hold.
func (f *fleet) step(events ...Event) []Command {
	before := f.ledgers()
	out := f.world.step(events...)
	f.keptEnough(before)
	f.madeNotTooMany()
	return out
}

// learn notes members that came up otherwise than by a step.
func (f *fleet) learn() {
	for name, l := range f.ledgers() {
		if l.Pool != "" {
			f.everMembers[name] = true
		}
	}
}

// ledgers are the stored ledger entries of proxies.
func (f *fleet) ledgers() map[string]bus.Ledger {
	out := map[string]bus.Ledger{}
	for subject, msg := range f.stored {
		at, _ := f.cfg.Names.Parse(subject)
		if at.Kind != "ledger" || at.Class != "proxy" {
			continue
		}
		l, err := bus.Decode[bus.Ledger](msg.Data)
		if err != nil {
			f.t.Fatalf("ledger of %s: %v", at.Name, err)
		}
		out[at.Name] = l
	}
	return out
}

func (f *fleet) poolLedger(name string) (l bus.PoolLedger) {
	l, _ = bus.Decode[bus.PoolLedger](f.stored[f.cfg.Names.Ledger("pool", name)].Data)
	return l
}

func (f *fleet) reachable(host string) bool {
	h := f.model.hosts[host]
	return h != nil && h.reachable && h.doc != nil
}

// healthy reports whether the binding of a ledger entry is one that clients can use.
func (f *fleet) healthy(l bus.Ledger) bool {
	if l.UID == "" || !f.reachable(l.Host) {
		return false
	}
	s, _ := bus.Decode[bus.State](f.stored[f.cfg.Names.StateProxy(l.Host, l.Name, l.UID)].Data)
	return s.Phase == bus.PhaseRunning && len(s.Addresses) > 0 && s.HostID == f.model.hosts[l.Host].id
}

// keptEnough holds that no pool gave up a healthy member that it needs.
func (f *fleet) keptEnough(before map[string]bus.Ledger) {
	now := f.ledgers()
	for name, was := range before {
		if was.Pool == "" || now[name].UID == was.UID || !f.healthy(was) {
			continue
		}
		pool := f.poolLedger(was.Pool)
		if pool.Accepted == nil || pool.Accepted.Desired == bus.DesiredAbsent {
			continue
		}
		left := 0
		for _, l := range now {
			if l.Pool == was.Pool && f.healthy(l) {
				left++
			}
		}
		if floor := pool.Size - pool.Accepted.Update.MaxUnavailable; left < floor {
			f.t.Fatalf("pool %s gave up %s; %d are left of at least %d", was.Pool, name, left, floor)
		}
	}
}

// madeNotTooMany holds that a pool which made a member has no more than it may.
func (f *fleet) madeNotTooMany() {
	exist, made := map[string]int{}, map[string]string{}
	for name, l := range f.ledgers() {
		if l.Pool == "" {
			continue
		}
		if !f.everMembers[name] {
			made[l.Pool] = name
		}
		there := 0
		if l.UID != "" {
			there++
		}
		for _, r := range l.Retired {
			if !r.Gone && f.reachable(r.Host) {
				there++
			}
		}
		if l.Accepted != nil && l.Accepted.Desired == bus.DesiredRunning {
			there = max(there, 1) // it is to be
		}
		exist[l.Pool] += there
	}
	f.learn()
	for pool, name := range made {
		doc := f.poolLedger(pool).Accepted
		if _, most := doc.Bounds(); exist[pool] > most+*doc.Update.Surge {
			f.t.Fatalf("pool %s made %s; %d exist, and no more than %d and %d may", pool, name, exist[pool], most, *doc.Update.Surge)
		}
	}
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
	for name, l := range f.ledgers() {
		if l.UID != "" {
			c := taken[l.Host]
			c.Slots++
			c.VCPUs += l.Shape.VCPUs
			taken[l.Host] = c
		}
		for _, r := range l.Retired {
			if r.UID == l.UID {
				f.t.Fatalf("%s: uid %s is bound and retired", name, r.UID)
			}
		}
		if live := f.live(name); len(live) > 1 {
			f.t.Fatalf("%s lives more than once: %v", name, live)
		}
	}
	for host, c := range taken {
		if c.Slots > slots || c.VCPUs > 8 {
			f.t.Fatalf("host %s is beyond its capacity: %+v", host, c)
		}
	}
}

// degraded is a mood of hosts beside the codes of errors.
const degraded = "degraded"

// answer lets a host do what its assignments say, or fail at it.
func (f *fleet) answer(host, mood string) {
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
		s := bus.State{Phase: bus.PhaseRunning, Generation: a.Generation, Addresses: []bus.Address{{Address: "192.0.2.1", Family: "ipv4", Port: 3128}}}
		switch {
		case a.Tombstone():
			s.Phase, s.Addresses = bus.PhaseGone, nil
		case mood == degraded:
			s.Phase = bus.PhaseDegraded
		case mood != "":
			s.Phase, s.Addresses, s.Error = bus.PhaseFailed, nil, &bus.Error{Code: mood, Message: "made up"}
		case a.Desired == bus.DesiredStopped:
			s.Phase, s.Addresses = bus.PhaseStopped, nil
		}
		events = append(events, f.publishState(host, a.Proxy, a.UID, s))
	}
	f.step(events...)
}

func (f *fleet) allAnswer() {
	for _, h := range hosts {
		f.answer(h, "")
	}
}

// publish has a host say what it offers.
func (f *fleet) publish(host string, disk int) {
	h := f.host(host)
	h.Offer.Capacity = bus.Capacity{VCPUs: 8, MemoryMiB: 16384, DiskGiB: -1, Slots: slots}
	h.Offer.DefaultDiskGiB = disk
	f.step(f.publishHost(host, h))
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

// shown is the inventory of proxies without the reasons for waiting: of several reasons
// the first is shown, and it may have been found at another time.
func (f *fleet) shown() string {
	return regexp.MustCompile(`"waiting":"[^"]*"`).ReplaceAllString(fmt.Sprint(f.model.put[Proxies], f.model.put[Endpoints]), "")
}
