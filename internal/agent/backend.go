package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt"
	"proxyfleet/internal/backends/local"
	"proxyfleet/internal/backends/proxmox"
	"proxyfleet/internal/backends/sim"
)

// LocalChild is the hidden subcommand of cmd/agent that runs one proxy of the local
// backend: what follows it goes to [local.RunChild].
const LocalChild = "local-proxy"

// opener opens a backend whose own configuration is decoded already.
type opener func(backends.Owner, *slog.Logger) (backends.Backend, error)

// BackendTypes are what backend.type may be.
func BackendTypes() []string {
	return []string{"local", "libvirt", "proxmox", "gcp", "kubernetes", "sim"}
}

// opener decodes the backend's own keys strictly. It opens nothing.
func (c Config) opener() (opener, error) {
	switch c.Backend.Type {
	case "local":
		own := local.Config{State: filepath.Join(c.StateDir, "local")}
		if err := c.Backend.decode(&own); err != nil {
			return nil, err
		}
		return func(o backends.Owner, log *slog.Logger) (backends.Backend, error) {
			self, err := os.Executable()
			if err != nil {
				return nil, fmt.Errorf("find the program that runs the proxies: %w", err)
			}
			return local.New(own, local.Options{Owner: o, Log: log, Exec: []string{self, LocalChild}})
		}, nil
	case "libvirt":
		var own libvirt.Config
		if err := c.Backend.decode(&own); err != nil {
			return nil, err
		}
		return func(o backends.Owner, log *slog.Logger) (backends.Backend, error) {
			return libvirt.New(own, c.HostConfig, libvirt.Options{Owner: o, Log: log, StateDir: c.StateDir})
		}, nil
	case "proxmox":
		var own proxmox.Config
		if err := c.Backend.decode(&own); err != nil {
			return nil, err
		}
		return func(o backends.Owner, log *slog.Logger) (backends.Backend, error) {
			return proxmox.New(own, c.HostConfig, proxmox.Options{Owner: o, Log: log, StateDir: c.StateDir})
		}, nil
	case "kubernetes":
		return c.kubernetesOpener()
	case "gcp":
		return c.gcpOpener()
	case "sim":
		var own sim.Config
		if err := c.Backend.decode(&own); err != nil {
			return nil, err
		}
		return func(o backends.Owner, log *slog.Logger) (backends.Backend, error) {
			return sim.New(own, sim.Options{Owner: o, Log: log, Host: c.HostConfig})
		}, nil
	}
	return nil, fmt.Errorf("backend.type: %q is not one of %s", c.Backend.Type, strings.Join(BackendTypes(), ", "))
}

// OpenBackend opens the configured backend for owner.
func OpenBackend(cfg Config, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
	open, err := cfg.opener()
	if err != nil {
		return nil, err
	}
	return open(owner, log)
}
