package egress

import (
	"net/netip"
	"testing"
)

func TestDestinationsAreClosedByDefault(t *testing.T) {
	own := netip.MustParseAddr("203.0.113.7")
	closed := Rules{Own: []netip.Addr{own}}
	private := Rules{Own: closed.Own, Private: true}
	demo := Rules{Own: closed.Own, Loopback: true}
	for _, c := range []struct {
		addr                  string
		closed, private, demo bool
	}{
		{"93.184.216.34", true, true, true},
		{"2606:2800:220:1::1", true, true, true},
		{"203.0.113.7", false, false, false},
		{"127.0.0.1", false, false, true},
		{"127.255.1.2", false, false, true},
		{"::1", false, false, true},
		{"::ffff:127.0.0.1", false, false, false},
		{"::ffff:93.184.216.34", false, false, false},
		{"::127.0.0.1", false, false, false},
		{"0.0.0.0", false, false, false},
		{"0.1.2.3", false, false, false},
		{"::", false, false, false},
		{"169.254.169.254", false, false, false},
		{"fe80::1", false, false, false},
		{"fd00:ec2::254", false, false, false},
		{"fd00:ec2::23", false, false, false},
		{"fd00:100::100:200", false, false, false},
		{"fd20:ce::254", false, false, false},
		{"fd00:a9fe:a9fe::1", false, false, false},
		{"fd00:c1::a9fe:a9fe", false, false, false},
		{"fd00:42::42", false, false, false},
		{"100.100.100.200", false, false, false},
		{"168.63.129.16", false, false, false},
		{"192.0.0.192", false, false, false},
		{"224.0.0.1", false, false, false},
		{"ff02::1", false, false, false},
		{"255.255.255.255", false, false, false},
		{"64:ff9b::a00:1", false, false, false},
		{"2002:7f00:1::", false, false, false},
		{"10.1.2.3", false, true, false},
		{"172.16.0.1", false, true, false},
		{"172.32.0.1", true, true, true},
		{"192.168.255.255", false, true, false},
		{"100.64.0.1", false, true, false},
		{"198.18.0.1", false, true, false},
		{"fd12:3456::1", false, true, false},
	} {
		a := netip.MustParseAddr(c.addr)
		for name, got := range map[string][2]bool{
			"closed":  {closed.Addr(a), c.closed},
			"private": {private.Addr(a), c.private},
			"demo":    {demo.Addr(a), c.demo},
		} {
			if got[0] != got[1] {
				t.Errorf("%s to %s: got allowed %v, want %v", name, c.addr, got[0], got[1])
			}
		}
	}
	if (Rules{}).Addr(netip.Addr{}) || (Rules{}).Addr(netip.MustParseAddr("fe80::1%eth0")) || (Rules{}).Addr(netip.MustParseAddr("2600::1%eth0")) {
		t.Error("an invalid address or one with a zone is allowed")
	}
}

func TestPorts(t *testing.T) {
	r := Rules{ConnectPorts: []int{22}}
	for _, c := range []struct {
		port          int
		connect, http bool
	}{
		{443, true, true}, {80, false, true}, {22, true, true}, {25, false, false}, {1024, false, false},
		{1025, false, true}, {65535, false, true}, {65536, false, false}, {0, false, false}, {-1, false, false},
	} {
		if got := r.Connect(c.port); got != c.connect {
			t.Errorf("CONNECT to %d: got %v, want %v", c.port, got, c.connect)
		}
		if got := r.Port(c.port); got != c.http {
			t.Errorf("request to %d: got %v, want %v", c.port, got, c.http)
		}
	}
}

// Squid ignores the larger of two networks of one list where one contains the other.
func TestNoListHasANetworkInsideAnother(t *testing.T) {
	for name, list := range map[string][]netip.Prefix{"refused": Refused(), "private": Private(), "loopback": loopback()} {
		for i, p := range list {
			if p != p.Masked() {
				t.Errorf("%s: %s has host bits", name, p)
			}
			for _, q := range list[i+1:] {
				if p.Overlaps(q) {
					t.Errorf("%s: %s and %s overlap", name, p, q)
				}
			}
		}
	}
}
