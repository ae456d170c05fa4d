package local_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/local"
)

func TestPortsAndAddressesRunOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.41:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close())
	b := backend(t, newHost(t), func(c *local.Config) {
		c.Addresses, c.Ports = []string{"127.0.0.41", "127.0.0.42"}, fmt.Sprintf("%d-%d", port, port)
	})
	one, two := ensure(t, b, request(ref(8))), ensure(t, b, request(ref(9)))
	if one.Addresses[0] == two.Addresses[0] || one.Port != two.Port {
		t.Errorf("got %v:%d and %v:%d, want one port on two addresses", one.Addresses, one.Port, two.Addresses, two.Port)
	}
	_, err = b.Ensure(t.Context(), request(ref(10)), func(backends.Progress) {})
	if backends.Class(err) != backends.ErrNoCapacity {
		t.Errorf("a third: got %v, want NoCapacity", err)
	}
	offer, err := b.Offer(t.Context())
	if err != nil || offer.Capacity.Slots != 2 {
		t.Errorf("offer: got %+v (%v), want 2 slots", offer, err)
	}
}

func TestAnAddressWhosePortsOthersTookIsPassedOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.43:0")
	must(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	b := backend(t, newHost(t), func(c *local.Config) {
		c.Addresses, c.Ports = []string{"127.0.0.43", "127.0.0.44"}, fmt.Sprintf("%d-%d", port, port)
	})
	if got := ensure(t, b, request(ref(12))).Addresses[0]; got != netip.MustParseAddr("127.0.0.44") {
		t.Errorf("got %s, want the address that has the port free", got)
	}
}

func TestTheCheckCountsFreePortsAndLooksAtSources(t *testing.T) {
	b := backend(t, newHost(t), func(c *local.Config) {
		c.Addresses, c.Ports = []string{"127.0.0.45"}, "21000-21009"
		c.Egress = map[string][]string{"127.0.0.45": {"127.0.0.46", "2001:db8::1"}}
	})
	ensure(t, b, request(ref(13)))
	checks := map[string]backends.TargetHealth{}
	for _, c := range b.Check(t.Context()) {
		checks[c.Target] = c
	}
	if got := checks["address/127.0.0.45"].Details["freePorts"]; got != "9" {
		t.Errorf("free ports: got %q, want 9", got)
	}
	if got := checks["egress/127.0.0.46"].Code; got != backends.CheckOK {
		t.Errorf("a source that is here: got %s", got)
	}
	if got := checks["egress/2001:db8::1"].Code; got != backends.CheckNetworkNotFound {
		t.Errorf("a source that is not here: got %s", got)
	}
}

func TestAPortTakenWhileStoppedIsNoCapacity(t *testing.T) {
	b := backend(t, newHost(t), nil)
	req := request(ref(11))
	i := ensure(t, b, req)
	req.Desired = backends.Stopped
	ensure(t, b, req)
	l, err := net.Listen("tcp", netip.AddrPortFrom(i.Addresses[0], uint16(i.Port)).String())
	must(t, err)
	req.Desired = backends.Running
	_, err = b.Ensure(t.Context(), req, func(backends.Progress) {})
	if backends.Class(err) != backends.ErrNoCapacity {
		t.Errorf("got %v, want NoCapacity", err)
	}
	l.Close()
	if again := ensure(t, b, req); again.Port != i.Port {
		t.Errorf("port: got %d, want %d", again.Port, i.Port)
	}
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	for name, c := range map[string]local.Config{
		"no state":                     {},
		"a relative state":             {State: "state"},
		"a bad address":                {State: "/x", Addresses: []string{"host"}},
		"every address":                {State: "/x", Addresses: []string{"0.0.0.0"}},
		"a multicast address":          {State: "/x", Addresses: []string{"224.0.0.1"}},
		"ports backwards":              {State: "/x", Ports: "2-1"},
		"port 0":                       {State: "/x", Ports: "0-10"},
		"a port too high":              {State: "/x", Ports: "1-65536"},
		"no range":                     {State: "/x", Ports: "80"},
		"negative":                     {State: "/x", MaxProxies: -1},
		"egress of no address of ours": {State: "/x", Egress: map[string][]string{"192.0.2.1": {"192.0.2.2"}}},
		"egress by what is no address": {State: "/x", Egress: map[string][]string{"127.0.0.1": {"eth0"}}},
		"egress by two of one family":  {State: "/x", Egress: map[string][]string{"127.0.0.1": {"192.0.2.1", "192.0.2.2"}}},
		"egress by none":               {State: "/x", Egress: map[string][]string{"127.0.0.1": {}}},
		"too little memory":            {State: "/x", Limits: local.Limits{MemoryMiB: 31}},
		"fewer than no connections":    {State: "/x", Limits: local.Limits{Connections: -1}},
		"fewer than no processors":     {State: "/x", Limits: local.Limits{CPUs: -1}},
	} {
		if _, err := local.New(c, local.Options{Exec: []string{"/bin/true"}}); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if _, err := local.New(local.Config{State: t.TempDir()}, local.Options{}); err == nil {
		t.Error("no command: got no error")
	}
}

func TestAnAddressThatIsNotHereIsTheHostsFault(t *testing.T) {
	b := backend(t, newHost(t), func(c *local.Config) { c.Addresses = []string{"192.0.2.254"} })
	checks := b.Check(t.Context())
	if len(checks) != 2 || checks[1].Code != backends.CheckNetworkNotFound || checks[1].Message == "" {
		t.Errorf("checks: got %+v, want NetworkNotFound for the address", checks)
	}
}
