package libvirt

import (
	"net/netip"
	"slices"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// addressSource is one that knows addresses of guests.
type addressSource string

const (
	fromAgent      addressSource = "guest agent"
	fromLeases     addressSource = "leases of libvirt's network"
	fromNeighbours addressSource = "neighbours of the host"
)

// sources are what is asked for a guest's addresses, the best first. A guest on macvtap is
// no neighbour of its host.
func (n Network) sources() []addressSource {
	switch {
	case n.Direct != "":
		return []addressSource{fromAgent}
	case n.Bridge != "":
		return []addressSource{fromAgent, fromNeighbours}
	}
	return []addressSource{fromAgent, fromLeases, fromNeighbours}
}

// addresses asks the sources about a running guest. unread says that some source failed and
// none had an answer, which is not the same as a guest without an address.
func (b *Backend) addresses(s *session, dom golibvirt.Domain, mac string) (found []netip.Addr, unread bool) {
	n := b.cfg.Network
	return firstAnswer(n.sources(), func(from addressSource) ([]netip.Addr, error) {
		ask := golibvirt.DomainInterfaceAddressesSrcLease
		switch from {
		case fromAgent:
			// Asked while no agent is there, libvirtd would log an error each time.
			if there, err := agentThere(s, dom); err != nil || !there {
				return nil, err
			}
			ask = golibvirt.DomainInterfaceAddressesSrcAgent
		case fromNeighbours:
			if !b.cfg.Remote() {
				texts, err := neighbours(mac)
				return n.usable(texts), err
			}
			ask = golibvirt.DomainInterfaceAddressesSrcArp
		}
		cards, err := within(s, "read addresses", agentBudget, func(l *golibvirt.Libvirt) ([]golibvirt.DomainInterface, error) {
			return l.DomainInterfaceAddresses(dom, uint32(ask), 0)
		})
		return n.onCard(cards, mac), err
	})
}

// firstAnswer asks one source after the other until one has an answer.
func firstAnswer[S any](sources []S, ask func(S) ([]netip.Addr, error)) (found []netip.Addr, unread bool) {
	for _, from := range sources {
		found, err := ask(from)
		if len(found) > 0 {
			return found, false
		}
		unread = unread || err != nil
	}
	return nil, unread
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
func (n Network) onCard(cards []golibvirt.DomainInterface, mac string) []netip.Addr {
	var texts []string
	for _, c := range cards {
		if len(c.Hwaddr) == 0 || !strings.EqualFold(c.Hwaddr[0], mac) {
			continue
		}
		for _, a := range c.Addrs {
			texts = append(texts, a.Addr)
		}
	}
	return n.usable(texts)
}

// usable picks the addresses that clients may use, IPv4 first. IPv6 is left out where it is
// not asked for: a client that prefers it would find no rule that lets it in.
func (n Network) usable(texts []string) []netip.Addr {
	var found []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil || !a.IsGlobalUnicast() { // no loopback, link-local, unspecified
			continue
		}
		if a = a.Unmap(); a.Is4() || n.IPv6 {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, netip.Addr.Compare) // IPv4 sorts first
	return slices.Compact(found)
}

// leases reads all leases of the configured network in one call, by MAC in lower case. ok is
// false where there is no such network or it could not be read.
func (b *Backend) leases(s *session) (byMAC map[string][]netip.Addr, ok bool) {
	n := b.cfg.Network
	if n.LibvirtNetwork == "" {
		return nil, false
	}
	all, err := read(s, "read leases", func(l *golibvirt.Libvirt) ([]golibvirt.NetworkDhcpLease, error) {
		network, err := l.NetworkLookupByName(n.LibvirtNetwork)
		if err != nil {
			return nil, err
		}
		leases, _, err := l.NetworkGetDhcpLeases(network, nil, 1, 0)
		return leases, err
	})
	if err != nil {
		return nil, false
	}
	texts := map[string][]string{}
	for _, lease := range all {
		if len(lease.Mac) > 0 {
			mac := strings.ToLower(lease.Mac[0])
			texts[mac] = append(texts[mac], lease.Ipaddr)
		}
	}
	byMAC = make(map[string][]netip.Addr, len(texts))
	for mac, t := range texts {
		byMAC[mac] = n.usable(t)
	}
	return byMAC, true
}
