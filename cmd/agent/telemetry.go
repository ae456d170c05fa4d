package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"proxyfleet/internal/agent"
)

// telemetry is where spans and metrics go. Spans are exported when the standard variable
// OTEL_EXPORTER_OTLP_ENDPOINT says where to.
type telemetry struct {
	tracer  trace.TracerProvider
	meter   metric.MeterProvider
	metrics http.Handler
	closers []func(context.Context) error
}

func newTelemetry(cfg agent.Config) (*telemetry, error) {
	about := resource.NewSchemaless(attribute.String("service.name", "proxyfleet-agent"),
		attribute.String("service.version", version()), attribute.String("service.instance.id", cfg.Host.Name))
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(about))
	t := &telemetry{tracer: noop.NewTracerProvider(), meter: meter, metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		closers: []func(context.Context) error{meter.Shutdown}}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return t, nil
	}
	spans, err := otlptracehttp.New(context.Background())
	if err != nil {
		return nil, fmt.Errorf("spans: %w", err)
	}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans), sdktrace.WithResource(about))
	t.tracer = tracer
	t.closers = append(t.closers, tracer.Shutdown)
	return t, nil
}

// close flushes what is waiting, for a short while: a collector that is away does not hold
// up the end.
func (t *telemetry) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var err error
	for _, c := range t.closers {
		err = errors.Join(err, c(ctx))
	}
	return err
}
