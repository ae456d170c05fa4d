package libvirt

import (
	"net/netip"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// addresses asks the sources of addresses about a running guest: the network's leases, or
// the host's neighbours on a bridge, and then the guest agent, which knows best and may
// keep us waiting. unread says that some source failed and none had an answer, which is
// not the same as a guest without an address.
func (b *Backend) addresses(s *session, dom golibvirt.Domain, mac string) (found []netip.Addr, unread bool) {
	first := golibvirt.DomainInterfaceAddressesSrcLease
	if b.cfg.Network.Bridge != "" {
		first = golibvirt.DomainInterfaceAddressesSrcArp
	}
	found, err := source(s, dom, mac, first)
	unread = err != nil
	// Asked while no agent is there, libvirtd would log an error each time.
	if there, err := agentThere(s, dom); err != nil || !there {
		return found, len(found) == 0
	}
	told, err := source(s, dom, mac, golibvirt.DomainInterfaceAddressesSrcAgent)
	if err != nil {
		return found, len(found) == 0
	}
	if len(told) > 0 {
		return told, false
	}
	return found, unread && len(found) == 0
}

func source(s *session, dom golibvirt.Domain, mac string, from golibvirt.DomainInterfaceAddressesSource) ([]netip.Addr, error) {
	cards, err := within(s, "read addresses", agentBudget, func(l *golibvirt.Libvirt) ([]golibvirt.DomainInterface, error) {
		return l.DomainInterfaceAddresses(dom, uint32(from), 0)
	})
	return onCard(cards, mac), err
}

// agentThere reports whether the guest agent has opened its channel.
func agentThere(s *session, dom golibvirt.Domain) (bool, error) {
	text, err := read(s, "read domain", func(l *golibvirt.Libvirt) (string, error) { return l.DomainGetXMLDesc(dom, 0) })
	if err != nil {
		return false, err
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil || d.Devices == nil {
		return false, err
	}
	for _, c := range d.Devices.Channels {
		if c.Target != nil && c.Target.VirtIO != nil && c.Target.VirtIO.Name == guestAgentChannel {
			return c.Target.VirtIO.State == "connected", nil
		}
	}
	return false, nil
}

// onCard picks the addresses on the card with our MAC: a guest may have others, of
// containers and tunnels, that nobody reaches.
func onCard(cards []golibvirt.DomainInterface, mac string) []netip.Addr {
	var found []netip.Addr
	for _, c := range cards {
		if len(c.Hwaddr) == 0 || !strings.EqualFold(c.Hwaddr[0], mac) {
			continue
		}
		for _, a := range c.Addrs {
			found = appendUsable(found, a.Addr)
		}
	}
	return found
}

// appendUsable adds an IPv4 address that clients may use. IPv6 is left out: nothing asks
// for it yet, and a client that prefers it would find no rule that lets it in.
func appendUsable(to []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() || !a.IsGlobalUnicast() || slices.Contains(to, a) { // no loopback, link-local, unspecified
		return to
	}
	return append(to, a)
}

// leases reads all leases of the configured network in one call, by MAC in lower case. ok is
// false where there is no such network or it could not be read.
func (b *Backend) leases(s *session) (byMAC map[string][]netip.Addr, ok bool) {
	if b.cfg.Network.Bridge != "" {
		return nil, false
	}
	all, err := read(s, "read leases", func(l *golibvirt.Libvirt) ([]golibvirt.NetworkDhcpLease, error) {
		network, err := l.NetworkLookupByName(b.cfg.Network.LibvirtNetwork)
		if err != nil {
			return nil, err
		}
		leases, _, err := l.NetworkGetDhcpLeases(network, nil, 1, 0)
		return leases, err
	})
	if err != nil {
		return nil, false
	}
	byMAC = map[string][]netip.Addr{}
	for _, lease := range all {
		if len(lease.Mac) > 0 {
			mac := strings.ToLower(lease.Mac[0])
			byMAC[mac] = appendUsable(byMAC[mac], lease.Ipaddr)
		}
	}
	return byMAC, true
}
