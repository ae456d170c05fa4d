package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/trace"

	"proxyfleet/internal/agent"
	"proxyfleet/internal/program"
)

// telemetry is where spans and metrics go.
type telemetry struct {
	tracer  trace.TracerProvider
	meter   metric.MeterProvider
	metrics http.Handler
	close   func() error // sends on what is left
}

func newTelemetry(cfg agent.Config) (*telemetry, error) {
	about := program.About("proxyfleet-agent", cfg.Host.Name)
	registry := program.Registry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(about))
	tracer, stop, err := program.Tracing(about)
	if err != nil {
		return nil, err
	}
	return &telemetry{tracer: tracer, meter: meter, metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), close: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return errors.Join(meter.Shutdown(ctx), stop())
	}}, nil
}
