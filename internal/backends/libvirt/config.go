package libvirt

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"time"

	"proxyfleet/internal/backends"
)

// Config is the backend's part of agent.yaml, beside what all backends share.
type Config struct {
	// URI is "qemu:///system" (the default), or that of a daemon elsewhere:
	// "qemu+ssh://[user@]host[:port]/system" or "qemu+tls://host[:port]/system". With the first
	// two, "?socket=<absolute path>" names another socket.
	URI string `yaml:"uri"`
	SSH SSH    `yaml:"ssh"`
	TLS TLS    `yaml:"tls"`
	// StoragePool is a running pool of type dir, fs, netfs, logical or zfs. Default "default".
	StoragePool string `yaml:"storagePool"`
	// StorageAccess is "auto" (the default: the pool's files where it is a directory of this
	// machine, else volumes) or "volumes": through libvirt alone, for an agent that may use
	// its socket but not the pool's directory. Guests that were made in one way are not found in the
	// other.
	StorageAccess string  `yaml:"storageAccess"`
	Network       Network `yaml:"network"`
	// CPUMode is libvirt's: "host-model" (the default under KVM), "host-passthrough",
	// "maximum" (the default without KVM: newer guests panic on QEMU's own default).
	CPUMode string `yaml:"cpuMode"`
	// VirtType is "auto" (the default: kvm where it really works), "kvm" or "qemu".
	VirtType string `yaml:"virtType"`
	Repair   Repair `yaml:"repair"`
}

// Options are what an agent gives beside configuration.
type Options struct {
	Owner backends.Owner
	Log   *slog.Logger
	// StateDir is the agent's own directory. Images are brought there on their way to a pool
	// whose files the agent does not use itself, and to no other.
	StateDir string
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
	c.TLS, c.Repair = c.TLS.withDefaults(), c.Repair.withDefaults()
	if c.StoragePool == "" {
		c.StoragePool = "default"
	}
	if n := c.Network; n.Bridge == "" && n.Direct == "" && n.LibvirtNetwork == "" {
		c.Network.LibvirtNetwork = "default"
	}
	if c.VirtType == "" {
		c.VirtType = "auto"
	}
	if c.StorageAccess == "" {
		c.StorageAccess = "auto"
	}
	return c
}

// validate reports the first setting that cannot be used, by its path in the file.
func (c Config) validate() error {
	at, err := c.endpoint()
	if err != nil {
		return fmt.Errorf("uri: %w", err)
	}
	if at.transport == "ssh" && (!filepath.IsAbs(c.SSH.KeyFile) || !filepath.IsAbs(c.SSH.KnownHostsFile)) {
		return errors.New("ssh: keyFile and knownHostsFile must both be absolute paths")
	}
	if at.transport != "ssh" && c.SSH != (SSH{}) || at.transport != "tls" && c.TLS != (TLS{}).withDefaults() {
		return fmt.Errorf("ssh and tls belong to a uri with that transport, not to %s", at.transport)
	}
	if !name.MatchString(c.StoragePool) {
		return fmt.Errorf("storagePool: %q is no pool's name", c.StoragePool)
	}
	if a := c.StorageAccess; a != "auto" && a != "volumes" {
		return fmt.Errorf("storageAccess: %q is neither auto nor volumes", a)
	}
	if err := errors.Join(c.Network.validate(), c.Repair.validate()); err != nil {
		return err
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

// resolved is a request with its image and shape looked up.
type resolved struct {
	backends.Request
	image backends.Image
	shape backends.MachineType
	// missing says which of both the host does not have.
	missing error
}

// throughVolumes reports whether pools are worked through libvirt's volumes even where they are
// directories.
func (c Config) throughVolumes() bool { return c.StorageAccess == "volumes" || c.Remote() }
