package backends

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// DurationMetric is the histogram that [Decorate] keeps: seconds of each call, by "backend",
// "op" and "class", which is "OK", an error class, or "Ended" for a call whose context
// ended.
const DurationMetric = "proxyfleet.backend.duration"

// durationBounds, in seconds, reach from a read of a file to a slow image download.
var durationBounds = []float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900}

// Instruments are where a decorated backend reports to. What is nil is left out.
type Instruments struct {
	Tracer trace.Tracer
	Meter  metric.Meter
	Log    *slog.Logger
}

// Decorate gives b a span, a measurement and a log line for each call, so that backends
// carry none of it. The result is a [Watcher] exactly if b is one. Errors go into spans and
// logs as they are: by the contract they have no secrets. Requests do not.
func Decorate(b Backend, in Instruments) Backend {
	d := &decorated{Backend: b, tracer: in.Tracer, log: in.Log}
	if d.tracer == nil {
		d.tracer = tracenoop.NewTracerProvider().Tracer("")
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.log = d.log.With("backend", b.Kind())
	meter := in.Meter
	if meter == nil {
		meter = metricnoop.NewMeterProvider().Meter("")
	}
	var err error
	d.duration, err = meter.Float64Histogram(DurationMetric, metric.WithUnit("s"),
		metric.WithDescription("Duration of calls to the backend."), metric.WithExplicitBucketBoundaries(durationBounds...))
	if err != nil { // another instrument has the name
		d.log.Error("calls to the backend are not measured", "error", err)
		d.duration, _ = metricnoop.NewMeterProvider().Meter("").Float64Histogram(DurationMetric)
	}
	if w, ok := b.(Watcher); ok {
		return &decoratedWatcher{decorated: d, watcher: w}
	}
	return d
}

type decorated struct {
	Backend
	tracer   trace.Tracer
	duration metric.Float64Histogram
	log      *slog.Logger
}

type decoratedWatcher struct {
	*decorated
	watcher Watcher
}

// Watch implements [Watcher].
func (d *decoratedWatcher) Watch(ctx context.Context) <-chan Event { return d.watcher.Watch(ctx) }

// call is one call under way.
type call struct {
	d     *decorated
	ctx   context.Context
	op    string
	ref   Ref
	span  trace.Span
	began time.Time
}

func (d *decorated) begin(ctx context.Context, op string, ref Ref) call {
	attrs := []attribute.KeyValue{attribute.String("backend", d.Kind())}
	if ref != (Ref{}) {
		attrs = append(attrs, attribute.String("proxy", ref.Proxy), attribute.String("uid", ref.UID))
	}
	ctx, span := d.tracer.Start(ctx, "backend "+op, trace.WithAttributes(attrs...))
	return call{d: d, ctx: ctx, op: op, ref: ref, span: span, began: time.Now()}
}

// end reports how the call went. Reads that succeed are logged at debug level only.
func (c call) end(err error, read bool) {
	took := time.Since(c.began)
	class := outcome(err)
	c.d.duration.Record(context.WithoutCancel(c.ctx), took.Seconds(), metric.WithAttributes(
		attribute.String("backend", c.d.Kind()), attribute.String("op", c.op), attribute.String("class", class)))
	c.span.SetAttributes(attribute.String("class", class))
	attrs := []any{"op", c.op, "took", took.Round(time.Microsecond)}
	if c.ref != (Ref{}) {
		attrs = append(attrs, "proxy", c.ref.Proxy, "uid", c.ref.UID)
	}
	level := slog.LevelInfo
	switch {
	case err == nil:
		if read {
			level = slog.LevelDebug
		}
	case class == ended, class == ErrNotFound.Error() && read:
		level = slog.LevelDebug
		attrs = append(attrs, "class", class, "error", err)
	default:
		level = slog.LevelWarn
		attrs = append(attrs, "class", class, "error", err)
		c.span.SetStatus(codes.Error, err.Error())
	}
	c.span.End()
	c.d.log.Log(c.ctx, level, "backend call", attrs...)
}

// ended is the outcome of a call whose context ended: nobody's failure.
const ended = "Ended"

func outcome(err error) string {
	switch {
	case err == nil:
		return "OK"
	case Ended(err):
		return ended
	}
	return Class(err).Error()
}

// Ensure implements [Backend]. Steps become events of the span.
func (d *decorated) Ensure(ctx context.Context, req Request, report func(Progress)) (Instance, error) {
	c := d.begin(ctx, "ensure", req.Ref)
	c.span.SetAttributes(attribute.String("desired", string(req.Desired)), attribute.Int64("generation", int64(req.Generation)))
	last := ""
	i, err := d.Backend.Ensure(c.ctx, req, func(p Progress) {
		if p.Step != last { // a download reports its step a hundred times
			last = p.Step
			c.span.AddEvent(p.Step)
		}
		report(p)
	})
	c.end(err, false)
	return i, err
}

// Delete implements [Backend].
func (d *decorated) Delete(ctx context.Context, ref Ref) error {
	c := d.begin(ctx, "delete", ref)
	err := d.Backend.Delete(c.ctx, ref)
	c.end(err, false)
	return err
}

// Get implements [Backend].
func (d *decorated) Get(ctx context.Context, ref Ref) (Instance, error) {
	c := d.begin(ctx, "get", ref)
	i, err := d.Backend.Get(c.ctx, ref)
	c.end(err, true)
	return i, err
}

// List implements [Backend]. Parts that could not be read are counted in the span.
func (d *decorated) List(ctx context.Context) (Listing, error) {
	c := d.begin(ctx, "list", Ref{})
	l, err := d.Backend.List(c.ctx)
	c.span.SetAttributes(attribute.Int("instances", len(l.Instances)), attribute.Int("leftovers", len(l.Leftovers)), attribute.Int("unread", len(l.Unread)))
	c.end(err, true)
	return l, err
}

// Offer implements [Backend].
func (d *decorated) Offer(ctx context.Context) (Offer, error) {
	c := d.begin(ctx, "offer", Ref{})
	o, err := d.Backend.Offer(c.ctx)
	c.end(err, true)
	return o, err
}

// Check implements [Backend]. Its verdicts are for the host's state, and no failure of the
// call.
func (d *decorated) Check(ctx context.Context) []TargetHealth {
	c := d.begin(ctx, "check", Ref{})
	checks := d.Backend.Check(c.ctx)
	for _, t := range checks {
		if t.Code != CheckOK {
			c.span.AddEvent(t.Target, trace.WithAttributes(attribute.String("code", t.Code)))
		}
	}
	c.end(nil, true)
	return checks
}
