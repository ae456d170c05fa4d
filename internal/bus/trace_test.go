package bus_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func span(t *testing.T) (context.Context, trace.SpanContext) {
	t.Helper()
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 2}, SpanID: trace.SpanID{3}, TraceFlags: trace.FlagsSampled})
	return trace.ContextWithSpanContext(t.Context(), sc), sc
}

func TestTraceContextTravelsInTheHeader(t *testing.T) {
	ctx, want := span(t)
	h := nats.Header{}
	bus.InjectTrace(ctx, h)
	if h["traceparent"] == nil { // by its exact name: other clients look for that
		t.Errorf("header %v", h)
	}
	got := trace.SpanContextFromContext(bus.ExtractTrace(context.Background(), h))
	if got.TraceID() != want.TraceID() || got.SpanID() != want.SpanID() || !got.IsRemote() {
		t.Errorf("got %v, want %v", got, want)
	}
	other := nats.Header{"Traceparent": h["traceparent"]}
	if got := trace.SpanContextFromContext(bus.ExtractTrace(context.Background(), other)); got.TraceID() != want.TraceID() {
		t.Error("another client's spelling is not read")
	}
	empty := nats.Header{}
	bus.InjectTrace(context.Background(), empty)
	if len(empty) > 0 {
		t.Errorf("header without a span: %v", empty)
	}
	if trace.SpanContextFromContext(bus.ExtractTrace(context.Background(), nil)).IsValid() {
		t.Error("a span out of nothing")
	}
}

func TestAnIntentCarriesTheTraceOfItsPublisher(t *testing.T) {
	_, f := bustest.Fleet(t)
	ctx, want := span(t)
	if _, err := f.PublishIntent(ctx, f.Names().IntentProxy("p1"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	m := bustest.Follow(t, f, f.Names().Intents(), "").Next()
	if got := trace.SpanContextFromContext(bus.ExtractTrace(context.Background(), m.Header)); got.TraceID() != want.TraceID() {
		t.Errorf("got %v, want %v", got.TraceID(), want.TraceID())
	}
}
