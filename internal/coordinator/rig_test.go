package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator"
)

// rig is a bootstrapped fleet on a real server.
type rig struct {
	t   testing.TB
	srv *bustest.Server
	nc  *nats.Conn
	js  jetstream.JetStream
	// audit of the coordinators' buckets; 0: the default.
	audit time.Duration
}

func newRig(t testing.TB) *rig {
	srv := bustest.Start(t)
	srv.Bootstrap()
	nc, js := srv.Connect("test")
	return &rig{t: t, srv: srv, nc: nc, js: js}
}

// coordinator runs until the returned stop is called, which waits for its end.
func (r *rig) coordinator(holder string) (c *coordinator.Coordinator, stop func()) {
	r.t.Helper()
	c, _, stop = r.connected(holder)
	return c, stop
}

// connected is coordinator, and the connection that it has.
func (r *rig) connected(holder string) (c *coordinator.Coordinator, nc *nats.Conn, stop func()) {
	r.t.Helper()
	nc, js := r.srv.Connect(holder)
	fleet, err := bus.Open(bustest.Context(r.t), nc, js, bus.Names{}, "", bustest.Log(r.t))
	if err != nil {
		r.t.Fatal(err)
	}
	c = coordinator.New(fleet, nc, js, coordinator.Config{Holder: holder, LeaseTTL: time.Second, Audit: r.audit}, bustest.Log(r.t), nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			r.t.Errorf("coordinator %s: %v", holder, err)
		}
	})
	r.t.Cleanup(stop)
	return c, nc, stop
}

// leading waits until c leads.
func (r *rig) leading(c *coordinator.Coordinator) {
	r.t.Helper()
	bustest.Eventually(r.t, "leading", func() error {
		if role := c.Role(); role != coordinator.Leading {
			return errors.New(role.String())
		}
		return nil
	})
}

// host is an agent that reports whatever it is told to do as done.
type host struct {
	t    testing.TB
	name string
	link *bus.HostLink

	mu      sync.Mutex // guards the fields that follow
	counter uint64
	seen    map[string]bus.Assignment // newest by uid
	times   map[string]int            // deliveries by uid
}

func (r *rig) host(name string) *host { return r.hostIn(name, "", nil) }

// hostIn is a host of a zone, with labels.
func (r *rig) hostIn(name, zone string, labels map[string]string) *host {
	h := &host{t: r.t, name: name, link: r.srv.Host(name), seen: map[string]bus.Assignment{}, times: map[string]int{}}
	h.link.PutHost(bus.Host{
		Type: bus.TypeHost, HostID: name + "-id", Session: 1, Counter: 1, Backend: "local", Zone: zone, Labels: labels, InPlace: []string{"auth", "allowFrom"},
		Offer: bus.Offer{Capacity: bus.Capacity{VCPUs: -1, MemoryMiB: -1, DiskGiB: -1, Slots: -1}},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.link.Assignments(ctx, h.take)
	}()
	r.t.Cleanup(func() { cancel(); <-done })
	return h
}

func (h *host) take(ds []bus.Delivery) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range ds {
		if d.Doc == nil {
			continue
		}
		h.seen[d.UID] = *d.Doc
		h.times[d.UID]++
		h.counter++
		s := bus.State{Type: bus.TypeState, HostID: h.name + "-id", Session: 1, Counter: h.counter, Proxy: d.Proxy, UID: d.UID,
			Generation: d.Doc.Generation, Phase: bus.PhaseRunning,
			Addresses: []bus.Address{{Address: "192.0.2.1", Family: "ipv4", Port: 3128}}}
		switch d.Doc.Desired {
		case bus.DesiredAbsent:
			s.Phase, s.Addresses = bus.PhaseGone, nil
		case bus.DesiredStopped:
			s.Phase, s.Addresses = bus.PhaseStopped, nil
		}
		header := nats.Header{} // of the delivery's only the trace: it also says which batch it came in
		bus.InjectTrace(bus.ExtractTrace(context.Background(), d.Header), header)
		h.link.PutState(s, header)
	}
	return nil
}

func (h *host) deliveries() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, times := range h.times {
		n += times
	}
	return n
}

func intent(name string) []byte {
	return fmt.Appendf(nil, `{"name":%q,"spec":{"allowFrom":["10.0.0.0/8"]}}`, name)
}

// publish stores an intent as people do.
func (r *rig) publish(name string, doc []byte) uint64 {
	r.t.Helper()
	ack, err := r.js.Publish(bustest.Context(r.t), bus.Names{}.IntentProxy(name), doc)
	if err != nil {
		r.t.Fatal(err)
	}
	return ack.Sequence
}

func (r *rig) record(name string, want func(bus.Record) error) bus.Record {
	r.t.Helper()
	return r.srv.Record(r.js, name, want)
}

func phase(want bus.Phase) func(bus.Record) error {
	return func(rec bus.Record) error {
		if rec.Phase != want {
			return fmt.Errorf("phase %q, want %q: %+v", rec.Phase, want, rec)
		}
		return nil
	}
}

// ask makes a request of the API; bad is the service's error, empty if there is none.
func (r *rig) ask(verb, body string, into any) (bad string) {
	r.t.Helper()
	var msg *nats.Msg
	bustest.Eventually(r.t, "an answer of the API", func() error {
		var err error
		msg, err = r.nc.Request(bus.Names{}.API()+"."+verb, []byte(body), 5*time.Second)
		return err
	})
	if into != nil {
		if err := json.Unmarshal(msg.Data, into); err != nil {
			r.t.Fatalf("%s %s: %v in %q", verb, body, err, msg.Data)
		}
	}
	return msg.Header.Get(micro.ErrorCodeHeader)
}
