//go:build real

package libvirt

import (
	"context"
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

// crowd is a host with n domains of ours, on a way on which calls are counted.
func crowd(t testing.TB, n int) (host, *libvirttest.Counter) {
	t.Helper()
	d := startDaemon(t)
	counter := d.CountCalls(t)
	h := remoteHost(t, d, Config{URI: "qemu:///system?socket=" + counter.Socket, VirtType: "qemu"})
	s, err := h.open(t.Context())
	must(t, err)
	defer s.close()
	for range n {
		ref := newRef()
		m := domainMark{Mark: backends.Mark{Installation: "01installation", HostID: "01host", Proxy: ref.Proxy, UID: ref.UID}, Generation: 1, Port: 3128}
		must(t, s.do("define", readBudget, 0, func(l *golibvirt.Libvirt) error {
			_, err := l.DomainDefineXML("<domain type='qemu'><name>" + backends.InstanceName(ref.UID) + "</name><uuid>" + domainUUID(ref.UID) + "</uuid><metadata>" +
				m.element() + "</metadata><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>")
			return err
		}))
	}
	return h, counter
}

func TestTwoHundredDomainsAreListedWithFewCalls(t *testing.T) {
	const domains, few = 200, 20
	h, counter := crowd(t, domains)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	awaitConnected(t, h.Watch(ctx))
	list := func() int {
		t.Helper()
		counter.Calls()
		l, err := h.List(t.Context())
		must(t, err)
		if len(l.Instances) != domains {
			t.Fatalf("%d instances are listed, want %d", len(l.Instances), domains)
		}
		return counter.Calls()
	}
	if n := list(); n > domains+few {
		t.Errorf("the first listing made %d calls, want one for each mark and few more", n)
	}
	if n := list(); n > few {
		t.Errorf("the second listing made %d calls, want at most %d", n, few)
	}
	counter.Calls()
	if _, err := h.Offer(t.Context()); err != nil || counter.Calls() > few {
		t.Errorf("an offer: %v, or more than %d calls", err, few)
	}
}

func BenchmarkListingTwoHundredDomains(b *testing.B) {
	h, _ := crowd(b, 200)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	for e := range h.Watch(ctx) {
		if e.Reason == "Connected" {
			break
		}
	}
	for b.Loop() {
		if _, err := h.List(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
