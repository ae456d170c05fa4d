package libvirt

import (
	"encoding/xml"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

func TestACardIsAttachedAsConfigured(t *testing.T) {
	const mac, rest = "52:54:00:00:00:01", `<model type="virtio"></model>`
	const ovs, tag = `<virtualport type="openvswitch"><parameters></parameters></virtualport>`, `<vlan><tag id="7"></tag></vlan>`
	for want, n := range map[string]Network{
		`type="network"><source network="proxies"></source>`:         {LibvirtNetwork: "proxies"},
		`type="network"><source network="proxies"></source>` + tag:   {LibvirtNetwork: "proxies", VLAN: 7},
		`type="bridge"><source bridge="br0"></source>`:               {Bridge: "br0"},
		`type="bridge"><source bridge="br0"></source>` + tag:         {Bridge: "br0", VLAN: 7},
		`type="bridge"><source bridge="ovs0"></source>` + ovs:        {Bridge: "ovs0", OpenVSwitch: true},
		`type="bridge"><source bridge="ovs0"></source>` + tag + ovs:  {Bridge: "ovs0", OpenVSwitch: true, VLAN: 7},
		`type="direct"><source dev="eth0.7" mode="bridge"></source>`: {Direct: "eth0.7"},
	} {
		card := n.card(mac)
		text, err := xml.Marshal(&card)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.ReplaceAll(string(text), `<mac address="`+mac+`"></mac>`, "")
		if !strings.Contains(got, want+rest) {
			t.Errorf("%+v: got %s, want %s", n, got, want+rest)
		}
	}
}

func TestOnlyUsableAddressesOnOurCardAreReported(t *testing.T) {
	cards := []golibvirt.DomainInterface{
		{Name: "lo", Hwaddr: golibvirt.OptString{"00:00:00:00:00:00"}, Addrs: []golibvirt.DomainIPAddr{{Addr: "127.0.0.1"}}},
		{Name: "docker0", Hwaddr: golibvirt.OptString{"02:42:00:00:00:01"}, Addrs: []golibvirt.DomainIPAddr{{Addr: "172.17.0.1"}, {Addr: "2001:db8::d"}}},
		{Name: "tun0", Addrs: []golibvirt.DomainIPAddr{{Addr: "10.8.0.1"}}},
		{Name: "eth0", Hwaddr: golibvirt.OptString{"52:54:00:AA:BB:CC"}, Addrs: []golibvirt.DomainIPAddr{
			{Addr: "fe80::1"}, {Addr: "2001:db8::1"}, {Addr: "::1"}, {Addr: "169.254.1.1"}, {Addr: "0.0.0.0"}, {Addr: "127.0.0.2"}, {Addr: "odd"},
			{Addr: "192.168.122.7"}, {Addr: "192.168.122.7"},
		}},
	}
	v4, v6 := netip.MustParseAddr("192.168.122.7"), netip.MustParseAddr("2001:db8::1")
	for ipv6, want := range map[bool][]netip.Addr{false: {v4}, true: {v4, v6}} {
		if got := (Network{IPv6: ipv6}).onCard(cards, "52:54:00:aa:bb:cc"); !reflect.DeepEqual(got, want) {
			t.Errorf("ipv6 %v: got %v, want %v", ipv6, got, want)
		}
	}
}

func TestTheBestSourceThatHasAnAddressIsBelieved(t *testing.T) {
	a, b := []netip.Addr{netip.MustParseAddr("10.0.0.1")}, []netip.Addr{netip.MustParseAddr("10.0.0.2")}
	type answer struct {
		found []netip.Addr
		err   error
	}
	none, failed := answer{}, answer{nil, errors.New("no")}
	for what, c := range map[string]struct {
		answers []answer
		want    []netip.Addr
		unread  bool
	}{
		"the first":                        {[]answer{{a, nil}, {b, nil}}, a, false},
		"the next, where one has none":     {[]answer{none, {b, nil}}, b, false},
		"the next, where one fails":        {[]answer{failed, {b, nil}}, b, false},
		"nobody has one":                   {[]answer{none, none}, nil, false},
		"one fails and the other has none": {[]answer{failed, none}, nil, true},
		"the last fails":                   {[]answer{none, failed}, nil, true},
	} {
		got, unread := firstAnswer(c.answers, func(a answer) ([]netip.Addr, error) { return a.found, a.err })
		if !reflect.DeepEqual(got, c.want) || unread != c.unread {
			t.Errorf("%s: got %v, unread %v", what, got, unread)
		}
	}
	for _, c := range []struct {
		n    Network
		want []addressSource
	}{
		{Network{LibvirtNetwork: "default"}, []addressSource{fromAgent, fromLeases, fromNeighbours}},
		{Network{Bridge: "br0"}, []addressSource{fromAgent, fromNeighbours}},
		{Network{Direct: "eth0"}, []addressSource{fromAgent}},
	} {
		if got := c.n.sources(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: got %v, want %v", c.n, got, c.want)
		}
	}
}

func TestGuestsWithOneAddressAndSilentOnesAreNoticed(t *testing.T) {
	g := newGuests()
	now := time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC)
	one, two := backends.Mark{UID: "1", Proxy: "crawl-1"}, backends.Mark{UID: "2", Proxy: "crawl-2"}
	at := func(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }
	if shared, silent := g.saw(one, at("10.0.0.1"), false, now); shared != "" || silent != 0 {
		t.Errorf("alone: %q, %s", shared, silent)
	}
	if shared, _ := g.saw(two, at("10.0.0.1"), false, now); shared != "address 10.0.0.1 is also that of proxy crawl-1" {
		t.Errorf("a second one: %q", shared)
	}
	if got, known := g.shared(); known != 2 || len(got) != 1 || got[0] != "10.0.0.1 of [crawl-1 crawl-2]" {
		t.Errorf("got %v of %d", got, known)
	}
	if shared, _ := g.saw(two, nil, true, now); shared == "" {
		t.Error("sources that failed took an address away")
	}
	g.stopped("1")
	if shared, _ := g.saw(two, at("10.0.0.1"), false, now); shared != "" {
		t.Errorf("the other stopped: %q", shared)
	}
	if got, known := g.shared(); len(got) != 0 || known != 1 {
		t.Errorf("the other stopped: %v of %d", got, known)
	}
	g.saw(two, nil, false, now)
	if _, silent := g.saw(two, nil, true, now.Add(5*time.Minute)); silent != 5*time.Minute {
		t.Errorf("silent for %s, want 5m", silent)
	}
	if _, silent := g.saw(two, at("10.0.0.2"), false, now.Add(6*time.Minute)); silent != 0 {
		t.Errorf("with an address it is silent for %s", silent)
	}
	g.only(map[string]bool{"1": true})
	if len(g.known) != 0 {
		t.Errorf("known: %v", g.known)
	}
}

func TestAConsoleIsReadable(t *testing.T) {
	for raw, want := range map[string]string{
		"": "",
		"\x1b[2J\x1b[01;01H[    0.1] Linux\r\n\r\n\x1b[0;32m  OK  \x1b[0m Started\x00\xff squid.\n": "[    0.1] Linux\nOK   Started squid.",
		strings.Repeat("old\n", 50) + strings.Repeat("new\n", consoleLines):                         strings.TrimSpace(strings.Repeat("new\n", consoleLines)),
		"ü" + strings.Repeat("x", consoleBytes-1):                                                   strings.Repeat("x", consoleBytes-1),
	} {
		if got := lastLines(raw); got != want {
			t.Errorf("%q: got %q, want %q", raw, got, want)
		}
	}
}
