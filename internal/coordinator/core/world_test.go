package core

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"proxyfleet/internal/bus"
)

// world is what surrounds a model: streams that keep the last message of a subject, a
// clock that moves by hand, and hosts that say what a test makes them say. What the model
// commits is stored and comes back with the next step, as it does on the bus.
type world struct {
	model   *Model
	cfg     Config
	now     time.Time
	steps   uint64
	seq     map[string]uint64  // by stream
	stored  map[string]bus.Msg // by subject
	told    []bus.Msg          // all that was ever stored, in order: what a standby has seen
	echo    []Event            // stored by the model, not yet given back
	mute    bool               // nothing comes back
	written uint64             // sequence of the model's last write
	counts  uint64             // counter of the hosts' documents
	hosts   map[string]bus.Host
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld() *world {
	w := &world{
		cfg:    Config{Installation: bus.Installation{ID: "inst", Incarnation: "inc-1"}},
		now:    start,
		seq:    map[string]uint64{},
		stored: map[string]bus.Msg{},
		hosts:  map[string]bus.Host{},
	}
	w.model = New(w.cfg)
	return w
}

// stream is where a subject is kept; each counts its own sequences.
func (w *world) stream(subject string) string {
	at, ok := w.cfg.Names.Parse(subject)
	switch {
	case !ok:
		return "?"
	case at.Kind == "intent":
		return "intents"
	case at.Kind == "state":
		return "states"
	}
	return "assignments"
}

func (w *world) store(subject string, data []byte) bus.Msg {
	s := w.stream(subject)
	w.seq[s]++
	msg := bus.Msg{Subject: subject, Seq: w.seq[s], Time: w.now, Data: data}
	w.stored[subject] = msg
	w.told = append(w.told, msg)
	return msg
}

// step gives events to the model, what it wrote before them, and carries out what is
// stored by what it answers.
func (w *world) step(events ...Event) []Command {
	if !w.mute {
		events = append(w.echo, events...)
		w.echo = nil
	}
	out := w.decide(events...)
	for _, c := range out {
		switch c := c.(type) {
		case Commit:
			for _, write := range c.Writes {
				msg := w.store(write.Subject, write.Data)
				w.written = msg.Seq
				w.echo = append(w.echo, Message(msg))
			}
		case Retire:
			w.remove(c.Assign)
			w.remove(c.State)
		case ForgetLedger:
			w.remove(c.Entry)
		}
	}
	return out
}

// decide gives events to the model and stores nothing of what it answers.
func (w *world) decide(events ...Event) []Command {
	w.steps++
	in := Input{Now: w.now, Events: events, Stored: w.written}
	binary.BigEndian.PutUint64(in.Seed[:], w.steps)
	return w.model.Step(in)
}

// crash is a step of which no more than the first writes are stored, and a takeover.
func (w *world) crash(writes int, events ...Event) {
	for _, c := range w.decide(append(w.echo, events...)...) {
		if c, ok := c.(Commit); ok {
			for _, write := range c.Writes {
				if writes--; writes >= 0 {
					w.store(write.Subject, write.Data)
				}
			}
		}
	}
	w.takeover()
}

func (w *world) remove(m bus.Msg) {
	if was, ok := w.stored[m.Subject]; ok && was.Seq == m.Seq {
		w.told = append(w.told, bus.Msg{Subject: m.Subject}) // the marker, which goes by itself
		delete(w.stored, m.Subject)
	}
}

// settle steps until nothing comes back any more.
func (w *world) settle(events ...Event) []Command {
	out := w.step(events...)
	for len(w.echo) > 0 && !w.mute {
		out = append(out, w.step()...)
	}
	return out
}

// takeover replaces the model by one that reads everything anew.
func (w *world) takeover() []Command {
	w.model, w.echo, w.written = New(w.cfg), nil, 0
	return w.settle(append(w.everything(), CaughtUp{Intents: w.seq["intents"]})...)
}

// everything is what is stored, as it is read.
func (w *world) everything() []Event {
	msgs := slices.SortedFunc(maps.Values(w.stored), func(a, b bus.Msg) int {
		return cmp.Or(cmp.Compare(w.stream(a.Subject), w.stream(b.Subject)), cmp.Compare(a.Seq, b.Seq))
	})
	var events []Event
	for _, m := range msgs {
		events = append(events, Message(m))
	}
	return events
}

// standby is a model that has followed everything that was ever stored.
func (w *world) standby() *Model {
	m := New(w.cfg)
	for _, msg := range w.told {
		m.Step(Input{Now: w.now, Events: []Event{Message(msg)}})
	}
	return m
}

// host is a host's document with what most tests want.
func (w *world) host(name string) bus.Host {
	if h, ok := w.hosts[name]; ok {
		return h
	}
	return bus.Host{
		Type: bus.TypeHost, HostID: name + "-id", Session: 1, Backend: "libvirt",
		InPlace: []string{"auth", "allowFrom"},
		Offer: bus.Offer{
			Images: []string{"debian-13", "debian-12"}, DefaultImage: "debian-13",
			MachineTypes:       []bus.MachineType{{Name: "small", VCPUs: 1, MemoryMiB: 1024}, {Name: "big", VCPUs: 4, MemoryMiB: 8192}},
			DefaultMachineType: "small", DefaultDiskGiB: 10,
			Capacity: bus.Capacity{VCPUs: 8, MemoryMiB: 16384, DiskGiB: 100, Slots: -1},
		},
	}
}

// pass lets time pass, in which the named hosts beat and nobody pulls for the others.
func (w *world) pass(by time.Duration, alive ...string) (out []Command) {
	for end := w.now.Add(by); w.now.Before(end); {
		w.now = w.now.Add(min(5*time.Second, end.Sub(w.now)))
		var events []Event
		for _, name := range alive {
			h := w.host(name)
			events = append(events, Beat{name, bus.Beat{HostID: h.HostID, Session: h.Session}})
		}
		step := w.settle(append(events, Tick{})...)
		for i := 0; i < len(step); i++ {
			if ask, ok := step[i].(AskPulls); ok {
				step = append(step, w.settle(Pulls{ask.Host, false})...)
				continue
			}
			out = append(out, step[i])
		}
	}
	return out
}

// publishHost stores a host's document.
func (w *world) publishHost(name string, h bus.Host) Event {
	w.counts++
	h.Counter = w.counts
	w.hosts[name] = h
	return Message(w.store(w.cfg.Names.StateHost(name), bus.Encode(h)))
}

// publishState stores a host's state of a uid, answering the assignment that is stored.
func (w *world) publishState(host, proxy, uid string, s bus.State) Event {
	w.counts++
	s.Type, s.Proxy, s.UID = bus.TypeState, proxy, uid
	h := w.host(host)
	s.HostID = cmp.Or(s.HostID, h.HostID)
	s.Session = cmp.Or(s.Session, h.Session)
	s.Counter = cmp.Or(s.Counter, w.counts)
	if s.Generation == 0 {
		a, _ := bus.Decode[bus.Assignment](w.stored[w.cfg.Names.Assign(host, proxy, uid)].Data)
		s.Generation = a.Generation
	}
	return Message(w.store(w.cfg.Names.StateProxy(host, proxy, uid), bus.Encode(s)))
}
