package kubernetes

import (
	"fmt"
	"net/netip"
	"slices"
)

// reach is where clients reach a proxy, or why that is not known.
type reach struct {
	addresses       []netip.Addr
	unread          bool // a name was not looked up, which does not mean that it has no address
	reason, message string
}

// reach finds where clients reach the proxy of a Pod.
func (b *Backend) reach(f found) (r reach) {
	switch f.record.Expose {
	case exposeNodePort: // the Pod's own node: no other passes traffic on
		for _, ip := range f.pod.Status.HostIPs {
			r.addresses = b.appendAddress(r.addresses, ip.IP)
		}
	case exposeLoadBalancer:
		r = b.balanced(f)
	default:
		for _, ip := range f.pod.Status.PodIPs {
			r.addresses = b.appendAddress(r.addresses, ip.IP)
		}
	}
	return r
}

// balanced reads a load balancer: its addresses, and those that its names have now.
func (b *Backend) balanced(f found) (r reach) {
	ingress := f.service.Status.LoadBalancer.Ingress
	if len(ingress) == 0 {
		return reach{reason: reasonNoAddress, message: "the cluster has not given the Service " + f.service.Name + " a load balancer yet"}
	}
	for _, in := range ingress {
		r.addresses = b.appendAddress(r.addresses, in.IP)
		if in.Hostname == "" {
			continue
		}
		named := f.names[in.Hostname]
		for _, a := range named.addresses {
			r.addresses = b.appendAddress(r.addresses, a.String())
		}
		if err := named.err; err != nil {
			r.unread = r.unread || !isNoSuchName(err)
			r.reason, r.message = reasonUnresolved, fmt.Sprintf("the load balancer's name %s does not resolve yet: %v", in.Hostname, err)
		}
	}
	slices.SortFunc(r.addresses, netip.Addr.Compare) // name servers change the order at will
	r.addresses = slices.Compact(r.addresses)
	if r.reason == "" && len(r.addresses) == 0 {
		r.reason, r.message = reasonNoAddress, "none of the load balancer's addresses is one that clients could use; IPv6 is reported with ipv6: true only"
	}
	return r
}

// appendAddress adds what may be reported: never what is loopback or link-local, and IPv6 where
// configured.
func (b *Backend) appendAddress(to []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || !a.IsGlobalUnicast() || a.Unmap().Is6() && !b.conf.IPv6 {
		return to
	}
	return append(to, a.Unmap())
}
