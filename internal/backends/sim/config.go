package sim

import (
	"fmt"
	"log/slog"
	"net/netip"

	"proxyfleet/internal/backends"
)

// DefaultNetwork is where addresses come from by default: the range for benchmarks (RFC
// 2544), which is never routed.
const DefaultNetwork = "198.18.0.0/15"

// Config is the part of agent.yaml for this backend.
type Config struct {
	State   string `yaml:"state"`   // directory to keep instances in; empty: memory only
	Sync    bool   `yaml:"sync"`    // fsync every object
	Network string `yaml:"network"` // default DefaultNetwork
	Slots   int    `yaml:"slots"`   // instances at most; 0: no limit
	DiskGiB int    `yaml:"diskGiB"` // largest disk; default 1000
	Port    int    `yaml:"port"`    // for instances that ask for port 0; 0: one that follows from the uid
}

// Options come from the agent.
type Options struct {
	Owner backends.Owner
	Log   *slog.Logger        // nil: discard
	World *World              // a host shared with a test or an earlier backend; nil: made from Config
	Host  backends.HostConfig // its images, machine types and defaults are offered
}

const defaultDiskGiB = 1000

func (c Config) network() (netip.Prefix, error) {
	if c.Network == "" {
		return netip.MustParsePrefix(DefaultNetwork), nil
	}
	p, err := netip.ParsePrefix(c.Network)
	if err != nil || p != p.Masked() || !p.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("backend.network: %q is not an IPv4 network without host bits", c.Network)
	}
	return p, nil
}
