// Package egress says where clients may go through a proxy: one set of rules, closed by
// default, for every backend. A renderer takes its lists, a proxy of ours asks it.
//
// It imports the standard library only. Everything in it is pure.
package egress

import (
	"net/netip"
	"slices"
)

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, t := range texts {
		out[i] = netip.MustParsePrefix(t)
	}
	return out
}

// Refused are the destinations that no intent opens: this host, link-local, cloud
// metadata, what is not unicast, and IPv6 ranges that carry an IPv4 destination inside,
// which would go around the IPv4 rules. Sources: the IANA special-purpose address
// registries; the metadata addresses are AWS's (services on fd00:ec2::/32), Alibaba's
// (100.100.100.200, fd00:100::100:200), Azure's wire server (168.63.129.16), Google's on
// hosts without IPv4 (fd20:ce::254), Linode's (fd00:a9fe:a9fe::1), Oracle's (192.0.0.192,
// fd00:c1::a9fe:a9fe) and Scaleway's (fd00:42::42), the others' being link-local.
func Refused() []netip.Prefix {
	return prefixes(
		"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"100.100.100.200/32", "168.63.129.16/32",
		"::/128", "::1/128", "fe80::/10", "fec0::/10", "ff00::/8",
		"fd00:ec2::/32", "fd00:100::100:200/128", "fd20:ce::254/128", "fd00:a9fe:a9fe::1/128", "fd00:c1::a9fe:a9fe/128", "fd00:42::42/128",
		"64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32",
	)
}

// Embedded are IPv6 forms of IPv4 addresses that are refused as they stand. They are apart
// from [Refused] because Squid turns them into IPv4 before it compares, and would read
// the range as all of IPv4.
func Embedded() []netip.Prefix { return prefixes("::ffff:0:0/96", "::/96") }

// Private are the destinations that an intent opens with egress.private: RFC 1918, CGNAT,
// benchmark networks, ULA.
func Private() []netip.Prefix {
	return prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7")
}

// loopback is the part of Refused that demonstrations and tests may open.
func loopback() []netip.Prefix { return prefixes("127.0.0.0/8", "::1/128") }

// Rules are one proxy's. The zero value is closed.
type Rules struct {
	Private      bool         // private ranges are allowed
	ConnectPorts []int        // allowed for CONNECT beside 443
	Own          []netip.Addr // of the proxy's host: refused
	// Loopback allows this host itself, for demonstrations and tests on one machine. No
	// intent can set it.
	Loopback bool
}

// RefusedAlways is [Refused] without what Loopback opens, in a stable order.
func (r Rules) RefusedAlways() []netip.Prefix {
	out := Refused()
	if r.Loopback {
		out = slices.DeleteFunc(out, func(p netip.Prefix) bool { return slices.Contains(loopback(), p) })
	}
	return out
}

// Addr reports whether an address, as resolved, may be dialled. Ask for every address of a
// name, and dial exactly the one that was asked for.
func (r Rules) Addr(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	if r.Loopback && a.IsLoopback() && !a.Is4In6() {
		return true
	}
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case slices.Contains(r.Own, a), slices.ContainsFunc(Embedded(), in), slices.ContainsFunc(r.RefusedAlways(), in):
		return false
	}
	return r.Private || !slices.ContainsFunc(Private(), in)
}

// Connect reports whether CONNECT to the port is allowed.
func (r Rules) Connect(port int) bool { return port == 443 || slices.Contains(r.ConnectPorts, port) }

// Ports that plain requests may go to: HTTP, HTTPS and the unprivileged ones.
const (
	HTTPPort      = 80
	HTTPSPort     = 443
	FirstFreePort = 1025
)

// Port reports whether a plain request may go to the port.
func (r Rules) Port(port int) bool {
	return port == HTTPPort || port == HTTPSPort || (port >= FirstFreePort && port <= 65535) || slices.Contains(r.ConnectPorts, port)
}
