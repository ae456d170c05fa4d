package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator"
)

// A clone is refused, whatever it says and whoever leads, and the host keeps its name, its
// proxies and their states.
func TestACloneOfAHostStaysRefusedThroughATakeover(t *testing.T) {
	f := &fleet{t: t, server: bustest.Start(t)}
	f.server.Bootstrap()
	_, js := f.server.Connect("test")
	states := bustest.Follow(t, f.server.Open("look"), bus.Names{}.States(), "")
	_, stopFirst := f.coordinate("first")
	real, _ := f.agent(t.TempDir())
	publish(t, f.server.URL(), "crawl-1")
	before := running(t, f.server.URL(), "crawl-1")
	second, _ := f.coordinate("second")

	clone, stopClone := f.agent(t.TempDir())
	refused := func() error {
		if err := clone.Health(); err == nil || !strings.Contains(err.Error(), real.HostID()) {
			return fmt.Errorf("the clone is well: %v", err)
		}
		return nil
	}
	bustest.Eventually(t, "the clone is refused", refused)
	stands := func() error {
		var h bus.Host
		var s bus.State
		states.Newest(bus.Names{}.StateHost("kvm-1"), func(m bus.Msg) (err error) { h, err = bus.Decode[bus.Host](m.Data); return err })
		states.Newest(bus.Names{}.StateProxy("kvm-1", "crawl-1", before.UID), func(m bus.Msg) (err error) { s, err = bus.Decode[bus.State](m.Data); return err })
		if h.HostID != real.HostID() || s.HostID != real.HostID() || s.Phase != bus.PhaseRunning {
			return fmt.Errorf("stored are %+v and %+v, want those of host id %s", h, s, real.HostID())
		}
		return nil
	}
	if err := stands(); err != nil {
		t.Fatal(err)
	}
	// A restart of the server is when both say everything again.
	f.server.Restart()
	running(t, f.server.URL(), "crawl-1")
	time.Sleep(2 * time.Second)
	if err := stands(); err != nil {
		t.Fatal(err)
	}

	// Its document stands there all the same, and then another one takes over. By the digest
	// of its states the host differs in nothing.
	doc := bus.Encode(bus.Host{Type: bus.TypeHost, HostID: clone.HostID(), Session: 9, Counter: 9, Backend: "sim"})
	if _, err := js.Publish(bustest.Context(t), bus.Names{}.StateHost("kvm-1"), doc); err != nil {
		t.Fatal(err)
	}
	stopFirst()
	bustest.Eventually(t, "the second one leads", func() error {
		if role := second.Role(); role != coordinator.Leading {
			return errors.New(role.String())
		}
		return nil
	})
	bustest.Eventually(t, "the host's own documents are back", stands)
	if after := running(t, f.server.URL(), "crawl-1"); after.UID != before.UID {
		t.Errorf("the proxy was made anew: %+v, was %+v", after, before)
	}
	publish(t, f.server.URL(), "crawl-2") // it is offered again
	if rec := running(t, f.server.URL(), "crawl-2"); rec.Host != "kvm-1" {
		t.Errorf("got %+v", rec)
	}
	if err := errors.Join(refused(), real.Health()); err != nil {
		t.Fatal(err)
	}
	stopClone()
}
