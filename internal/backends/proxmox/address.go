package proxmox

import (
	"net/netip"
	"slices"

	"proxyfleet/internal/backends/proxmox/pve"
)

// onCard picks the addresses of the card with this MAC that others can reach: a guest may
// have bridges and containers of its own. IPv4 comes first.
func onCard(cards []pve.Interface, mac string, ipv6 bool) []netip.Addr {
	var out []netip.Addr
	for _, c := range cards {
		if c.MAC != mac || mac == "" {
			continue
		}
		for _, a := range c.Addresses {
			a = a.Unmap().WithZone("")
			usable := a.IsGlobalUnicast() && !a.IsLinkLocalUnicast() && !a.IsLoopback()
			if usable && (a.Is4() || ipv6) && !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return out
}
