package libvirt

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"time"

	"proxyfleet/internal/backends"
)

// Config is the backend's part of agent.yaml, beside what all backends share.
type Config struct {
	// URI is "qemu:///system" (the default); "?socket=<absolute path>" names another socket.
	URI string `yaml:"uri"`
	// StoragePool is a running pool of type dir, fs or netfs. Default "default".
	StoragePool string  `yaml:"storagePool"`
	Network     Network `yaml:"network"`
	// CPUMode is libvirt's: "host-model" (the default under KVM), "host-passthrough",
	// "maximum" (the default without KVM: newer guests panic on QEMU's own default).
	CPUMode string `yaml:"cpuMode"`
	// VirtType is "auto" (the default: kvm where it really works), "kvm" or "qemu".
	VirtType string `yaml:"virtType"`
}

// Network is what a guest's one card is attached to. At most one of both.
type Network struct {
	LibvirtNetwork string `yaml:"libvirtNetwork"` // default "default"
	Bridge         string `yaml:"bridge"`         // an existing bridge of the host
	VLAN           int    `yaml:"vlan"`           // 1 to 4094 on an Open vSwitch bridge or a network that allows it; 0: none
}

// Options are what an agent gives beside configuration.
type Options struct {
	Owner backends.Owner
	Log   *slog.Logger
	// HTTP downloads images; nil is a client of its own.
	HTTP *http.Client
	// ShutdownGrace is how long a guest may take to shut down before it is switched off.
	// Default 2 minutes: one that is emulated on a busy host was seen to need over one.
	ShutdownGrace time.Duration
}

// name is what a pool, network or bridge may be called.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

func (c Config) withDefaults() Config {
	if c.URI == "" {
		c.URI = "qemu:///system"
	}
	if c.StoragePool == "" {
		c.StoragePool = "default"
	}
	if c.Network.Bridge == "" && c.Network.LibvirtNetwork == "" {
		c.Network.LibvirtNetwork = "default"
	}
	if c.VirtType == "" {
		c.VirtType = "auto"
	}
	return c
}

// validate reports the first setting that cannot be used, by its path in the file.
func (c Config) validate() error {
	if _, _, err := c.address(); err != nil {
		return fmt.Errorf("uri: %w", err)
	}
	if !name.MatchString(c.StoragePool) {
		return fmt.Errorf("storagePool: %q is no pool's name", c.StoragePool)
	}
	n := c.Network
	switch {
	case n.Bridge != "" && n.LibvirtNetwork != "":
		return fmt.Errorf("network: bridge and libvirtNetwork exclude each other")
	case n.Bridge != "" && (!name.MatchString(n.Bridge) || len(n.Bridge) > 15):
		return fmt.Errorf("network.bridge: %q is no bridge's name", n.Bridge)
	case n.LibvirtNetwork != "" && !name.MatchString(n.LibvirtNetwork):
		return fmt.Errorf("network.libvirtNetwork: %q is no network's name", n.LibvirtNetwork)
	case n.VLAN < 0 || n.VLAN > 4094:
		return fmt.Errorf("network.vlan: %d is not between 1 and 4094", n.VLAN)
	}
	switch c.CPUMode {
	case "", "host-model", "host-passthrough", "maximum":
	default:
		return fmt.Errorf("cpuMode: %q is none of host-model, host-passthrough, maximum", c.CPUMode)
	}
	switch c.VirtType {
	case "auto", "kvm", "qemu":
	default:
		return fmt.Errorf("virtType: %q is none of auto, kvm, qemu", c.VirtType)
	}
	return nil
}

// sockets are where a daemon listens: the monolithic one, then the modular one, which
// serves pools and networks as well by passing on what it does not do itself.
var sockets = []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"}

// address takes the URI apart into the driver's name and the sockets to try in order.
func (c Config) address() (driver string, paths []string, err error) {
	u, err := url.Parse(c.URI)
	if err != nil {
		return "", nil, fmt.Errorf("%q is no URI", c.URI)
	}
	if (u.Scheme != "qemu" && u.Scheme != "qemu+unix") || u.Host != "" || u.Path != "/system" {
		return "", nil, fmt.Errorf("%q is not qemu:///system: an agent runs on the host whose guests it makes", c.URI)
	}
	if path := u.Query().Get("socket"); path != "" {
		if !filepath.IsAbs(path) {
			return "", nil, fmt.Errorf("socket %q is not an absolute path", path)
		}
		return "qemu:///system", []string{path}, nil
	}
	return "qemu:///system", sockets, nil
}

// resolved is a request with its image and shape looked up.
type resolved struct {
	backends.Request
	image backends.Image
	shape backends.MachineType
	// missing says which of both the host does not have.
	missing error
}
