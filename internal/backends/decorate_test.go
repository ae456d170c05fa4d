package backends_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/sim"
)

var ref = backends.Ref{Proxy: "crawl-1", UID: "01jd3v6q4m8e2x5y7z9abcdefg"}

func request() backends.Request {
	return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, Access: backends.Access{
		Username: "u", Password: "very-secret", AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
}

// measured is a decorated sim whose reports can be read.
type measured struct {
	backends.Backend
	spans  *tracetest.SpanRecorder
	reader *metric.ManualReader
	log    *bytes.Buffer
}

func measure(t *testing.T, b backends.Backend) measured {
	t.Helper()
	m := measured{spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader(), log: &bytes.Buffer{}}
	m.Backend = backends.Decorate(b, backends.Instruments{
		Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(m.spans)).Tracer("test"),
		Meter:  metric.NewMeterProvider(metric.WithReader(m.reader)).Meter("test"),
		Log:    slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	return m
}

func newSim(t *testing.T) *sim.Backend {
	t.Helper()
	b, err := sim.New(sim.Config{}, sim.Options{Owner: backends.Owner{Installation: "i", HostID: "h"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// counts are the calls that were measured, as "op class".
func (m measured) counts(t *testing.T) []string {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := m.reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range rm.ScopeMetrics {
		for _, metric := range s.Metrics {
			h, ok := metric.Data.(metricdata.Histogram[float64])
			if !ok || metric.Name != backends.DurationMetric || metric.Unit != "s" {
				t.Fatalf("unexpected metric %+v", metric)
			}
			for _, p := range h.DataPoints {
				op, _ := p.Attributes.Value("op")
				class, _ := p.Attributes.Value("class")
				out = append(out, op.AsString()+" "+class.AsString())
			}
		}
	}
	slices.Sort(out)
	return out
}

func TestEachCallIsASpanAMeasurementAndALogLine(t *testing.T) {
	m := measure(t, newSim(t))
	ctx, done := context.WithCancel(t.Context())
	if _, err := m.Ensure(ctx, request(), func(backends.Progress) {}); err != nil {
		t.Fatal(err)
	}
	bad := request()
	bad.UserData = []byte("#sim ensure-error=NoCapacity")
	bad.UID = "01jd3v6q4m8e2x5y7z9abcdefh"
	_, err := m.Ensure(ctx, bad, func(backends.Progress) {})
	if backends.Class(err) != backends.ErrNoCapacity {
		t.Fatalf("the decorator changed the error: %v", err)
	}
	_, _ = m.Get(ctx, ref)
	_, _ = m.Get(ctx, bad.Ref)
	_, _ = m.List(ctx)
	_, _ = m.Offer(ctx)
	_ = m.Check(ctx)
	_ = m.Delete(ctx, ref)
	done()
	_, _ = m.Get(ctx, ref)

	want := []string{"check OK", "delete OK", "ensure NoCapacity", "ensure OK", "get Ended", "get NotFound", "get OK", "list OK", "offer OK"}
	if got := m.counts(t); !slices.Equal(got, want) {
		t.Errorf("measured: got %v, want %v", got, want)
	}
	failed := 0
	for _, s := range m.spans.Ended() {
		if s.Status().Code == codes.Error {
			failed++
			if s.Name() != "backend ensure" {
				t.Errorf("span %s failed", s.Name())
			}
		}
	}
	if n := len(m.spans.Ended()); n != 9 || failed != 1 {
		t.Errorf("spans: got %d with %d failed, want 9 with 1", n, failed)
	}
	said := m.log.String()
	if n := strings.Count(said, "backend call"); n != 9 {
		t.Errorf("log lines: got %d, want 9\n%s", n, said)
	}
	if n := strings.Count(said, "level=WARN"); n != 1 {
		t.Errorf("warnings: got %d, want 1\n%s", n, said)
	}
	if strings.Contains(said, "very-secret") {
		t.Errorf("a secret was logged:\n%s", said)
	}
}

func TestStepsBecomeEventsOnceEach(t *testing.T) {
	m := measure(t, newSim(t))
	req := request()
	req.UserData = []byte("#sim steps=3")
	var reported int
	if _, err := m.Ensure(t.Context(), req, func(backends.Progress) { reported++ }); err != nil {
		t.Fatal(err)
	}
	if events := m.spans.Ended()[0].Events(); len(events) != 4 || reported != 4 {
		t.Errorf("got %d events and %d reports, want 4 of each", len(events), reported)
	}
}

// unwatched hides that a backend is a Watcher.
type unwatched struct{ backends.Backend }

func TestADecoratedBackendWatchesExactlyIfItDidBefore(t *testing.T) {
	if _, ok := backends.Decorate(newSim(t), backends.Instruments{}).(backends.Watcher); !ok {
		t.Error("watching was lost")
	}
	if _, ok := backends.Decorate(unwatched{newSim(t)}, backends.Instruments{}).(backends.Watcher); ok {
		t.Error("watching was made up")
	}
}

func TestNothingNeedsToBeReportedTo(t *testing.T) {
	b := backends.Decorate(newSim(t), backends.Instruments{})
	if _, err := b.Ensure(t.Context(), request(), func(backends.Progress) {}); err != nil {
		t.Error(err)
	}
}
