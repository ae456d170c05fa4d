//go:build !no_kubernetes

package agent

import (
	"log/slog"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/kubernetes"
)

func (c Config) kubernetesOpener() (opener, error) {
	var own kubernetes.Config
	if err := c.Backend.decode(&own); err != nil {
		return nil, err
	}
	return func(o backends.Owner, log *slog.Logger) (backends.Backend, error) {
		return kubernetes.New(own, c.HostConfig, kubernetes.Options{Owner: o, Log: log})
	}, nil
}
