package bus

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/propagation"
)

// InjectTrace writes the trace context of ctx into h, as "traceparent" and "tracestate"
// (W3C Trace Context). Without a span in ctx it changes nothing.
func InjectTrace(ctx context.Context, h nats.Header) {
	propagation.TraceContext{}.Inject(ctx, headerCarrier(h))
}

// ExtractTrace returns ctx with the trace context that h carries, if any.
func ExtractTrace(ctx context.Context, h nats.Header) context.Context {
	return propagation.TraceContext{}.Extract(ctx, headerCarrier(h))
}

// headerCarrier reads names in any case, since other clients write "Traceparent", and
// writes them as the standard spells them. (http.Header would change their case.)
type headerCarrier nats.Header

func (c headerCarrier) Get(key string) string {
	for k, v := range c {
		if len(v) > 0 && strings.EqualFold(k, key) {
			return v[0]
		}
	}
	return ""
}

func (c headerCarrier) Set(key, value string) { c[key] = []string{value} }

func (c headerCarrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
