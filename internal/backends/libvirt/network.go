package libvirt

import (
	"errors"
	"fmt"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
)

// Network is what a guest's one card is attached to: at most one of LibvirtNetwork, Bridge
// and Direct.
type Network struct {
	LibvirtNetwork string `yaml:"libvirtNetwork"` // default "default"
	Bridge         string `yaml:"bridge"`         // an existing bridge of the host
	// OpenVSwitch says that Bridge is one of Open vSwitch.
	OpenVSwitch bool `yaml:"openVSwitch"`
	// Direct is a card of the host (or a VLAN on it, "eth0.7") that guests share by macvtap.
	// The host itself does not reach such guests, and only the guest agent tells their
	// addresses.
	Direct string `yaml:"direct"`
	// VLAN is a tag, 1 to 4094, on an Open vSwitch bridge, on a Linux bridge where libvirt can
	// (since 11.0.0), or on a libvirt network that allows it; 0: none.
	VLAN int `yaml:"vlan"`
	// IPv6 has guests take IPv6 addresses too, and reports these.
	IPv6 bool `yaml:"ipv6"`
}

// bridgeVLANs is the first libvirt that tags the ports of a Linux bridge. Source:
// https://libvirt.org/news.html, v11.0.0.
const bridgeVLANs = 11_000_000

// maxDevice is the length of a network device's name. Source: IFNAMSIZ in linux/if.h.
const maxDevice = 15

func (n Network) validate() error {
	device := func(key, value string) error {
		if value != "" && (!name.MatchString(value) || len(value) > maxDevice) {
			return fmt.Errorf("network.%s: %q is no network device's name", key, value)
		}
		return nil
	}
	targets := 0
	for _, t := range []string{n.LibvirtNetwork, n.Bridge, n.Direct} {
		if t != "" {
			targets++
		}
	}
	switch {
	case targets > 1:
		return errors.New("network: libvirtNetwork, bridge and direct exclude each other")
	case n.LibvirtNetwork != "" && !name.MatchString(n.LibvirtNetwork):
		return fmt.Errorf("network.libvirtNetwork: %q is no network's name", n.LibvirtNetwork)
	case n.OpenVSwitch && n.Bridge == "":
		return errors.New("network.openVSwitch: it belongs to a bridge")
	case n.VLAN < 0 || n.VLAN > 4094:
		return fmt.Errorf("network.vlan: %d is not between 1 and 4094", n.VLAN)
	case n.VLAN != 0 && n.Direct != "":
		return fmt.Errorf("network.vlan: direct takes an interface of the VLAN itself, such as %s.%d", n.Direct, n.VLAN)
	}
	return errors.Join(device("bridge", n.Bridge), device("direct", n.Direct))
}

// target names the network in checks.
func (n Network) target() string {
	switch {
	case n.Bridge != "":
		return "network/" + n.Bridge
	case n.Direct != "":
		return "network/" + n.Direct
	}
	return "network/" + n.LibvirtNetwork
}

// card is the one network card of a guest.
func (n Network) card(mac string) libvirtxml.DomainInterface {
	c := libvirtxml.DomainInterface{
		MAC:   &libvirtxml.DomainInterfaceMAC{Address: mac},
		Model: &libvirtxml.DomainInterfaceModel{Type: "virtio"},
	}
	switch {
	case n.Bridge != "":
		c.Source = &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: n.Bridge}}
	case n.Direct != "":
		c.Source = &libvirtxml.DomainInterfaceSource{Direct: &libvirtxml.DomainInterfaceSourceDirect{Dev: n.Direct, Mode: "bridge"}}
	default:
		c.Source = &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: n.LibvirtNetwork}}
	}
	if n.OpenVSwitch {
		c.VirtualPort = &libvirtxml.DomainInterfaceVirtualPort{Params: &libvirtxml.DomainInterfaceVirtualPortParams{
			OpenVSwitch: &libvirtxml.DomainInterfaceVirtualPortParamsOpenVSwitch{},
		}}
	}
	if n.VLAN != 0 {
		c.VLan = &libvirtxml.DomainInterfaceVLan{Tags: []libvirtxml.DomainInterfaceVLanTag{{ID: uint(n.VLAN)}}}
	}
	return c
}

// networkUp refuses to make a guest on a network that is down, or that this libvirt cannot
// attach it to: its start would fail.
func (b *Backend) networkUp(s *session) error {
	n := b.cfg.Network
	if n.Bridge != "" && n.VLAN != 0 && !n.OpenVSwitch {
		lib, err := read(s, "network", func(l *golibvirt.Libvirt) (uint64, error) { return l.ConnectGetLibVersion() })
		if err == nil && lib < bridgeVLANs {
			return backends.Wrap(backends.ErrHostFault, "network", &coded{backends.CheckAPIError, fmt.Errorf("libvirt is %s", version(lib))},
				"libvirt tags the ports of a Linux bridge since %s; use a bridge of the VLAN's own, or say that %s is one of Open vSwitch (openVSwitch)", version(bridgeVLANs), n.Bridge)
		}
		return err
	}
	if n.LibvirtNetwork == "" {
		return nil
	}
	active, err := networkActive(s, n.LibvirtNetwork)
	if err == nil && !active {
		return backends.Wrap(backends.ErrHostFault, "network", &coded{backends.CheckNetworkNotActive, errors.New("libvirt says so")},
			"network %q is not active; start it (virsh net-start) and let it start with the host (virsh net-autostart)", n.LibvirtNetwork)
	}
	return err
}

func networkActive(s *session, n string) (bool, error) {
	network, err := read(s, "network", func(l *golibvirt.Libvirt) (golibvirt.Network, error) { return l.NetworkLookupByName(n) })
	if err != nil {
		return false, err
	}
	active, err := read(s, "network", func(l *golibvirt.Libvirt) (int32, error) { return l.NetworkIsActive(network) })
	return active == 1, err
}
