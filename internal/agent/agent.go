package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/errgroup"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

// Options are what a caller adds to the configuration.
type Options struct {
	Log     *slog.Logger // nil: discard
	Version string       // of the program, a semantic one, for the host document and its service
	// NATS are options of the connection that come last.
	NATS []nats.Option
	// OpenBackend opens the backend; default the package's own [OpenBackend].
	OpenBackend func(Config, backends.Owner, *slog.Logger) (backends.Backend, error)
	// Tracer and Meter take spans and metrics; nil: nowhere.
	Tracer trace.TracerProvider
	Meter  metric.MeterProvider
	// Context wraps the context of every call to the backend; nil: as it is. It is for
	// builds that crash at a labelled step.
	Context func(context.Context) context.Context
}

// scope names what instruments belong to.
const scope = "proxyfleet/agent"

// Agent is one host's agent.
type Agent struct {
	cfg    Config
	opts   Options
	log    *slog.Logger
	id     *identity
	record *record
	loop   *loop
	link   *bus.HostLink
	out    *reporter

	pinned     chan struct{} // closed once the installation is known
	pinnedOnce sync.Once
	listAgain  chan struct{} // capacity 1
	checkAgain chan struct{} // capacity 1
	stop       context.CancelCauseFunc
	fromStart  bool   // belongs to receive: the consumer has begun anew
	run        string // names this start of the agent; a ULID

	mu            sync.Mutex // guards the fields that follow
	refused       string     // why this host may not use the name's consumer, or empty
	repeated      string     // incarnation or recovery for which everything was said again last
	asked         string     // the leader's last wish that everything be said again
	ownChecks     []bus.Check
	backendChecks []bus.Check
}

// Open takes the state directory: it locks it, counts a session and reads the record. It
// connects to nothing. Close the agent when done.
func Open(cfg Config, opts Options) (*Agent, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.OpenBackend == nil {
		opts.OpenBackend = OpenBackend
	}
	if opts.Tracer == nil {
		opts.Tracer = tracenoop.NewTracerProvider()
	}
	if opts.Meter == nil {
		opts.Meter = metricnoop.NewMeterProvider()
	}
	if opts.Context == nil {
		opts.Context = func(ctx context.Context) context.Context { return ctx }
	}
	id, err := openIdentity(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, opts: opts, log: opts.Log.With("host", cfg.Host.Name), id: id,
		run: bus.NewULID(), pinned: make(chan struct{}), listAgain: make(chan struct{}, 1), checkAgain: make(chan struct{}, 1), stop: func(error) {}}
	if err := a.openRecord(); err != nil {
		return nil, errors.Join(err, id.close())
	}
	if id.get().Installation != "" {
		a.pinnedOnce.Do(func() { close(a.pinned) })
	}
	return a, nil
}

func (a *Agent) openRecord() error {
	me := a.id.get()
	rec, found, err := openRecord(a.id.dir, me.HostID)
	if err != nil {
		return err
	}
	a.record = rec
	switch {
	case found.Lost() && me.Installation != "":
		a.log.Error("the record of assignments was lost or damaged; the coordinator is asked for all of them. Nothing is deleted meanwhile",
			"missing", found.Missing, "damagedLines", found.Corrupt, "kept", len(rec.entries))
		return a.id.update(func(w *who) { w.Resync = true })
	case found.Torn:
		a.log.Info("the last write of the record was cut off; it had not been acknowledged and comes again")
	}
	return nil
}

// HostID is this host's permanent id.
func (a *Agent) HostID() string { return a.id.get().HostID }

// Run works until ctx ends (nil) or the agent finds that it must not
// ([ErrOtherInstallation]). Instances stay as they are. It is called once.
func (a *Agent) Run(ctx context.Context) error {
	ctx, a.stop = context.WithCancelCause(ctx)
	defer a.stop(nil)
	nc, err := bus.Connect(a.cfg.NATS, "agent-"+a.cfg.Host.Name, a.log, a.opts.NATS...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := bus.JetStream(nc, a.cfg.NATS)
	if err != nil {
		return err
	}
	a.link = bus.OpenHost(nc, js, bus.Names{Root: a.cfg.Root}, a.cfg.Host.Name, a.log)
	defer a.link.Close()
	a.link.OnAdmission(a.admitted)
	a.prepare()
	unregister, err := a.measure(nc)
	if err != nil {
		return err
	}
	defer unregister()

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ended(ctx, a.link.Assignments(ctx, a.receive)) })
	g.Go(func() error { return a.beats(ctx) })
	g.Go(func() error { return a.reconnected(ctx, nc) })
	g.Go(func() error { return a.serve(ctx) })
	g.Go(func() error { a.answer(ctx, nc); return nil })
	err = g.Wait()
	a.loop.wait()
	a.lastWords()
	if cause := context.Cause(ctx); errors.Is(cause, ErrOtherInstallation) {
		return cause
	}
	return err
}

// prepare makes the loop from the record, and says that this host is here. What it offers
// follows when the backend is open.
func (a *Agent) prepare() {
	me := a.id.get()
	a.out = &reporter{link: a.link, hostID: me.HostID, session: me.Session}
	a.loop = newLoop(a.cfg, a.record, a.out, a.log)
	entries, _ := a.record.snapshot()
	for _, e := range entries {
		a.loop.assign(e, nil, true)
	}
	a.log.Info("agent starts", "hostId", me.HostID, "session", me.Session, "recorded", len(entries))
	a.out.change(func(h *bus.Host) {
		h.Backend, h.Zone, h.Labels, h.Version = a.cfg.Backend.Type, a.cfg.Host.Zone, a.cfg.Host.Labels, a.opts.Version
		h.Incarnation = me.Incarnation
	})
}

func newLoop(cfg Config, rec *record, out *reporter, log *slog.Logger) *loop {
	defaults := cfg.Defaults
	if cfg.Backend.Type == "local" {
		defaults = backends.Defaults{} // a process takes neither image nor machine type
	}
	return &loop{
		record: rec, out: out, defaults: defaults, log: log, drivers: map[string]*driver{},
		policy: policy{RetryMin: cfg.Intervals.RetryMin, RetryMax: cfg.Intervals.RetryMax, Probe: !cfg.Probe.Disabled,
			ProbeInterval: cfg.Probe.Interval, ProbeFailures: cfg.Probe.Failures, Spread: rand.Float64},
		probe:   func(ctx context.Context, o observed) error { return probe(ctx, o.Addresses, cfg.Probe.Timeout) },
		ensures: newSlots(cfg.Concurrency.Ensure), deletes: newSlots(cfg.Concurrency.Delete), reads: newSlots(cfg.Concurrency.Read),
	}
}

// serve opens the backend, as soon as the installation is known, and works with it until
// ctx ends. A backend that cannot be opened is tried again: a credential file may appear.
func (a *Agent) serve(ctx context.Context) error {
	if !a.first(ctx) {
		return nil
	}
	me := a.id.get()
	owner := backends.Owner{Installation: me.Installation, HostID: me.HostID}
	var b backends.Backend
	for failures := 1; ; failures++ {
		var err error
		if b, err = a.opts.OpenBackend(a.cfg, owner, a.log); err == nil {
			break
		}
		a.log.Error("cannot open the backend; trying again", "backend", a.cfg.Backend.Type, "error", err)
		a.say(targetBackend, backends.CheckAPIError, "cannot open the backend, trying again: "+asError(err).Message)
		if !sleep(ctx, backoff(failures, a.cfg.Intervals.RetryMin, a.cfg.Intervals.Check, a.loop.policy.Spread())) {
			return nil
		}
	}
	a.say(targetBackend, "", "")
	keeper, keepsImages := b.(backends.ImageKeeper)
	tidier, tidies := b.(backends.Tidier)
	b = backends.Decorate(b, backends.Instruments{Tracer: a.opts.Tracer.Tracer(scope), Meter: a.opts.Meter.Meter(scope), Log: a.log})
	a.out.change(func(h *bus.Host) {
		h.Backend, h.InPlace = b.Kind(), nil
		for _, f := range b.InPlace() {
			h.InPlace = append(h.InPlace, string(f))
		}
	})
	ctx = a.opts.Context(ctx)
	a.loop.start(ctx, b)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.check(ctx, b) })
	g.Go(func() error { return a.sweep(ctx, b) })
	g.Go(func() error { return a.watch(ctx, b) })
	if keepsImages && len(a.cfg.PrePull) > 0 {
		p := puller{keeper: keeper, keys: a.cfg.PrePull, policy: a.loop.policy, log: a.log, say: a.say}
		g.Go(func() error { return p.run(ctx) })
	}
	if tidies {
		g.Go(func() error { return tidy(ctx, tidier, a.log) })
	}
	err := g.Wait()
	a.loop.wait()
	return errors.Join(err, b.Close())
}

// lastWords waits a moment for what was said to be stored.
func (a *Agent) lastWords() {
	const moment = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), moment)
	defer cancel()
	if err := a.link.Flush(ctx); err != nil {
		a.log.Info("the last states were not stored; the next start says them again")
	}
}

// Close gives the state directory back, after Run.
func (a *Agent) Close() error {
	return errors.Join(a.record.close(), a.id.close())
}

// ended drops the error that is only the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("take assignments: %w", err)
}
