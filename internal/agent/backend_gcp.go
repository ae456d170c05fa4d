//go:build !no_gcp

package agent

import (
	"log/slog"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/gcp"
)

func (c Config) gcpOpener() (opener, error) {
	var own gcp.Config
	if err := c.Backend.decode(&own); err != nil {
		return nil, err
	}
	return func(o backends.Owner, log *slog.Logger) (backends.Backend, error) {
		return gcp.New(own, c.HostConfig, gcp.Options{Owner: o, Log: log, StateDir: c.StateDir})
	}, nil
}
