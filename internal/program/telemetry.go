package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// flushTime is how long a collector that is away holds up the end of a program.
const flushTime = 2 * time.Second

// About is how a program names itself to whoever collects its spans and metrics. instance may
// be empty.
func About(service, instance string) *resource.Resource {
	about := []attribute.KeyValue{attribute.String("service.name", service), attribute.String("service.version", Version())}
	if instance != "" {
		about = append(about, attribute.String("service.instance.id", instance))
	}
	return resource.NewSchemaless(about...)
}

// Registry is where a program keeps its metrics, with those of the Go runtime and the process.
func Registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Tracing exports spans by OTLP over HTTP when one of the standard variables
// OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT says where to, and drops
// them otherwise. stop sends on what is left.
func Tracing(about *resource.Resource) (provider trace.TracerProvider, stop func() error, err error) {
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return noop.NewTracerProvider(), func() error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(context.Background())
	if err != nil {
		return nil, nil, fmt.Errorf("spans: %w", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return p, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		if err := p.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("flush spans: %w", err)
		}
		return nil
	}, nil
}
