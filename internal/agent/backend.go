package agent

import (
	"fmt"
	"log/slog"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/sim"
)

// BackendTypes are what backend.type may be.
func BackendTypes() []string { return []string{"local", "libvirt", "sim"} }

// OpenBackend opens the configured backend for owner. Its own keys are decoded strictly.
func OpenBackend(cfg Config, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
	switch cfg.Backend.Type {
	case "sim":
		var own sim.Config
		if err := cfg.Backend.decode(&own); err != nil {
			return nil, err
		}
		return sim.New(own, sim.Options{Owner: owner, Log: log, Host: cfg.HostConfig})
	}
	return nil, fmt.Errorf("backend.type %q is not one of %s", cfg.Backend.Type, strings.Join(BackendTypes(), ", "))
}
