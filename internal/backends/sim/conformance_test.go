package sim_test

import (
	"log/slog"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/sim/simtest"
)

func TestMain(m *testing.M) { backendtest.Main(m, simtest.Harness()) }

func TestConformance(t *testing.T) { backendtest.Run(t, simtest.Harness()) }

// What Decorate puts around a backend must not show.
func TestConformanceDecorated(t *testing.T) {
	h := simtest.Harness()
	open := h.Open
	h.Open = func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
		b, err := open(host, owner, log)
		if err != nil {
			return nil, err
		}
		return backends.Decorate(b, backends.Instruments{Log: log}), nil
	}
	backendtest.Run(t, h)
}
