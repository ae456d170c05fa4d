package agent

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"proxyfleet/internal/bus"
)

// measure registers what is read whenever metrics are collected: proxies by phase, whether
// the server is there, and how far the record is. Calls to the backend are measured by its
// decorator.
func (a *Agent) measure(nc *nats.Conn) (unregister func(), err error) {
	meter := a.opts.Meter.Meter(scope)
	var errs [4]error
	proxies, e := meter.Int64ObservableGauge("proxyfleet.agent.proxies", metric.WithDescription("Proxies of this host by phase."))
	errs[0] = e
	connected, e := meter.Int64ObservableGauge("proxyfleet.agent.connected", metric.WithDescription("1 while connected to NATS."))
	errs[1] = e
	seq, e := meter.Int64ObservableGauge("proxyfleet.agent.recorded.sequence", metric.WithDescription("Highest assignment sequence on disk."))
	errs[2] = e
	resync, e := meter.Int64ObservableGauge("proxyfleet.agent.resync", metric.WithDescription("1 while the record is not complete."))
	errs[3] = e
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for phase, n := range a.phases() {
			o.ObserveInt64(proxies, n, metric.WithAttributes(attribute.String("phase", string(phase))))
		}
		o.ObserveInt64(connected, oneIf(nc.IsConnected()))
		o.ObserveInt64(seq, int64(a.record.highest()))
		o.ObserveInt64(resync, oneIf(a.id.get().Resync))
		return nil
	}, proxies, connected, seq, resync)
	if err != nil {
		return nil, err
	}
	return func() { _ = registration.Unregister() }, nil
}

// phases counts proxies; every phase that an agent reports is there, if with 0.
func (a *Agent) phases() map[bus.Phase]int64 {
	n := map[bus.Phase]int64{bus.PhaseProvisioning: 0, bus.PhaseRunning: 0, bus.PhaseDegraded: 0, bus.PhaseStopped: 0, bus.PhaseDeleting: 0, bus.PhaseFailed: 0}
	for _, d := range a.loop.all() {
		if s, ok := d.published(); ok {
			n[s.Phase]++
		}
	}
	return n
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
