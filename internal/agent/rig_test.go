package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/sim"
	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

const host = "host-1"

// rig is a real server with a leader's pen, a simulated machine, and an agent on it.
type rig struct {
	t      testing.TB
	server *bustest.Server
	fleet  *bus.Fleet
	leader *bus.Leader
	states *bustest.Stream
	world  *sim.World
	cfg    Config
	agent  *running
	broken atomic.Bool // the backend cannot be opened
}

type running struct {
	*Agent
	cancel context.CancelFunc
	done   chan error
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := bareRig(t)
	r.connectLeader()
	if err := r.fleet.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.start()
	return r
}

// bareRig has a server without streams, and no agent yet.
func bareRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, server: bustest.Start(t), world: sim.NewWorld()}
	r.cfg = Config{Host: HostConfig{Name: host, Zone: "z"}, StateDir: t.TempDir(), NATS: bus.ClientConfig{URL: r.server.URL()},
		Backend: BackendConfig{Type: "sim"}}
	r.cfg.setDefaults()
	r.cfg.Probe.Disabled = true
	r.cfg.Intervals.RetryMin, r.cfg.Intervals.RetryMax = 10*time.Millisecond, 50*time.Millisecond
	r.cfg.Intervals.Beat = 100 * time.Millisecond
	return r
}

func (r *rig) connectLeader() {
	r.t.Helper()
	r.server.Bootstrap()
	r.fleet = r.server.Open("coordinator")
	r.leader = bustest.Lead(r.t, r.fleet, "test")
	r.states = bustest.Follow(r.t, r.fleet, r.fleet.Names().States(), "")
}

// start starts the agent anew with the same state directory.
func (r *rig) start() {
	r.t.Helper()
	a, err := Open(r.cfg, Options{Log: bustest.Log(r.t), OpenBackend: func(cfg Config, o backends.Owner, log *slog.Logger) (backends.Backend, error) {
		if r.broken.Load() {
			return nil, errors.New("no such socket")
		}
		return sim.New(sim.Config{}, sim.Options{Owner: o, Log: log, World: r.world, Host: cfg.HostConfig})
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{Agent: a, cancel: cancel, done: make(chan error, 1)}
	go func() { run.done <- a.Run(ctx); close(run.done) }()
	r.agent = run
	r.t.Cleanup(func() { _ = run.end() })
}

// unpin lets a new session pull at once, as the coordinator does when it hears of one.
func (r *rig) unpin() {
	r.t.Helper()
	bustest.Eventually(r.t, "unpin", func() error { return r.fleet.UnpinHost(bustest.Context(r.t), host) })
}

// end stops the agent cleanly.
func (r *running) end() error {
	r.cancel()
	err := <-r.done
	return errors.Join(err, r.Close())
}

// kill drops the agent as if its process were killed: nothing is said or written any more,
// and the lock is free.
func (r *rig) kill() {
	r.t.Helper()
	_ = r.agent.id.lock.Close()
	r.agent.record.mu.Lock() // nothing reaches the file from here on
	_ = r.agent.record.file.Close()
	r.agent.record.file = nil
	r.agent.record.mu.Unlock()
	r.agent.cancel()
	<-r.agent.done
}

func newUID() string { return strings.ToLower(ulid.Make().String()) }

// assignment is a valid one for the rig's host.
func (r *rig) assignment(proxy, script string) bus.Assignment {
	i := r.fleet.Installation()
	return bus.Assignment{Type: bus.TypeAssignment, Installation: i.ID, Incarnation: i.Incarnation, HostID: r.agent.HostID(),
		Proxy: proxy, UID: newUID(), Generation: 1, Desired: bus.DesiredRunning,
		Spec: &bus.Spec{AllowFrom: []string{"10.0.0.0/8"}, CloudInit: script}}
}

func tombstone(a bus.Assignment) bus.Assignment {
	a.Desired, a.Spec = bus.DesiredAbsent, nil
	a.Generation++
	return a
}

func (r *rig) assign(as ...bus.Assignment) {
	r.t.Helper()
	var w []bus.Write
	for _, a := range as {
		w = append(w, bus.Write{Subject: r.fleet.Names().Assign(host, a.Proxy, a.UID), Data: bus.Encode(a)})
	}
	if err := r.leader.Commit(bustest.Context(r.t), w); err != nil {
		r.t.Fatal(err)
	}
}

// state waits for a newest state of a that satisfies want.
func (r *rig) state(a bus.Assignment, what string, want func(bus.State) bool) bus.State {
	r.t.Helper()
	var s bus.State
	r.states.Newest(r.fleet.Names().StateProxy(host, a.Proxy, a.UID), func(m bus.Msg) error {
		var err error
		if s, err = bus.Decode[bus.State](m.Data); err != nil {
			return err
		}
		if !want(s) {
			return fmt.Errorf("want %s, the newest state is %+v", what, s)
		}
		return nil
	})
	return s
}

// phase waits for a phase that answers a's generation.
func (r *rig) phase(a bus.Assignment, p bus.Phase) bus.State {
	r.t.Helper()
	return r.state(a, string(p), func(s bus.State) bool { return s.Phase == p && s.Generation == a.Generation })
}

// host waits for a newest host document that satisfies want.
func (r *rig) host(what string, want func(bus.Host) bool) bus.Host {
	r.t.Helper()
	var h bus.Host
	r.states.Newest(r.fleet.Names().StateHost(host), func(m bus.Msg) error {
		var err error
		if h, err = bus.Decode[bus.Host](m.Data); err != nil {
			return err
		}
		if !want(h) {
			return fmt.Errorf("want %s, the newest host document is %+v", what, h)
		}
		return nil
	})
	return h
}

// beat waits for a beat that satisfies want.
func (r *rig) beat(what string, want func(bus.Beat) bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bustest.Deadline)
	defer cancel()
	found := false
	_ = r.fleet.Beats(ctx, func(_ string, b bus.Beat) {
		if want(b) {
			found = true
			cancel()
		}
	})
	if !found {
		r.t.Fatalf("no beat with %s", what)
	}
}

// there reads an instance as its backend has it.
func (r *rig) there(a bus.Assignment) (backends.Instance, error) {
	b, err := sim.New(sim.Config{}, sim.Options{World: r.world, Owner: backends.Owner{Installation: a.Installation, HostID: a.HostID}})
	if err != nil {
		r.t.Fatal(err)
	}
	return b.Get(context.Background(), ref(a))
}

func (r *rig) gone(a bus.Assignment) {
	r.t.Helper()
	if _, err := r.there(a); !errors.Is(err, backends.ErrNotFound) {
		r.t.Errorf("instance of %s: got %v, want ErrNotFound", a.Proxy, err)
	}
}

// loseStreams ends the agent and makes the same installation anew on another server, as after
// the loss of everything that the first one stored.
func (r *rig) loseStreams() {
	r.t.Helper()
	if err := r.agent.end(); err != nil {
		r.t.Fatal(err)
	}
	id := r.fleet.Installation().ID
	r.server = bustest.Start(r.t)
	r.cfg.NATS.URL = r.server.URL()
	_, js := r.server.Connect("bootstrap")
	if _, err := bus.Bootstrap(bustest.Context(r.t), js, bus.Names{}, bus.BootstrapOptions{ID: id, MaxBytes: bustest.MaxBytes}); err != nil {
		r.t.Fatal(err)
	}
	r.connectLeader()
}
