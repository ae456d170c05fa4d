package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
	"proxyfleet/internal/coordinator/intents"
)

// input is a core.Event, caughtUp, reconnected, *await or *request.
type input any

// request is what a person asks of the model.
type request struct {
	ask   core.Ask
	reply chan core.Reply // buffered
}

// reconnected says that the connection to NATS was lost and is back.
type reconnected struct{}

// caughtUp says that everything is read that was stored, and that we lead. intents is the last
// sequence of the stream of intents.
type caughtUp struct {
	term    *term
	intents uint64
}

// await asks for the verdict on the intent of a sequence.
type await struct {
	judge func(*core.Model) (seq uint64, bad *intents.Invalid)
	seq   uint64
	reply chan verdict // buffered
}

// verdict is what became of an intent.
type verdict struct {
	seq uint64 // of the newest intent; higher than asked: another one came after it
	bad *intents.Invalid
}

// maxInputs bounds one step, so that a flood is decided in pieces.
const maxInputs = 2000

// maxBatch is where bus.Leader.Commit splits, for the server takes no more at once.
const maxBatch = 1000

// decider owns the model. It runs in one goroutine. Without a term it only takes in what is
// stored: what the model says of it meanwhile is kept, since a leader that died may not have
// said it any more.
type decider struct {
	model    *core.Model
	inputs   <-chan input
	term     *term // nil while another one leads
	unsaid   []core.Command
	removals removals
	outdated []bus.Write // removals that follow this step's decisions
	log      *slog.Logger
	metrics  *Metrics
	leads    func()

	awaits   []*await
	asked    uint64 // requests so far
	requests map[uint64]*request
}

func (d *decider) run(ctx context.Context) error {
	for {
		ins, err := d.next(ctx)
		if err != nil {
			return err
		}
		if err := d.step(ctx, ins); err != nil {
			return err
		}
	}
}

// next waits for an input, and takes what has come with it.
func (d *decider) next(ctx context.Context) ([]input, error) {
	var ins []input
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case in := <-d.inputs:
		ins = append(ins, in)
	}
	for len(ins) < maxInputs {
		select {
		case in := <-d.inputs:
			ins = append(ins, in)
		case <-ctx.Done():
			return nil, ctx.Err()
		default:
			return ins, nil
		}
	}
	return ins, nil
}

func (d *decider) step(ctx context.Context, ins []input) error {
	in := core.Input{Now: time.Now().UTC()}
	_, _ = rand.Read(in.Seed[:]) // never fails, see crypto/rand
	begins := false
	for _, i := range ins {
		switch i := i.(type) {
		case caughtUp:
			d.term, begins = i.term, true
			in.Events = append(in.Events, core.CaughtUp{Lost: i.term.leader.Lost(), Intents: i.intents})
		case reconnected:
			d.outdated = append(d.outdated, d.removals.again(in.Now)...)
			in.Events = append(in.Events, core.Reconnected{})
			d.term.inventory.recheck() // a server that was killed may have lost what it acked last
		case *await:
			d.awaits = append(d.awaits, i)
		case *request:
			d.asked++
			d.requests[d.asked] = i
			in.Events = append(in.Events, core.Request{ID: d.asked, Ask: i.ask})
		case core.Event:
			in.Events = append(in.Events, i)
		}
	}
	if d.term != nil {
		in.Stored = d.term.leader.Stored()
	}
	d.metrics.inputs.Add(float64(len(in.Events)))
	began := time.Now()
	commands := d.model.Step(in)
	d.metrics.step.Observe(time.Since(began).Seconds())
	if d.term == nil {
		d.keep(commands)
		return nil
	}
	commands, err := d.commit(ctx, commands)
	if err != nil {
		return err
	}
	if begins {
		commands = append(d.kept(in.Now), commands...)
	}
	for _, c := range commands {
		d.dispatch(c)
	}
	if begins {
		d.term.inventory.caughtUp()
		d.leads()
		d.log.Info("leading", "term", d.term.leader.Term())
	}
	d.term.inventory.wake()
	d.answer()
	outdated := d.outdated
	d.outdated = nil
	return d.store(ctx, outdated)
}

const (
	// sayAgain is how old an event may be that a new leader says again; within it the server
	// drops those that were said before.
	sayAgain = 5 * time.Minute
	// maxUnsaid bounds what is held back.
	maxUnsaid = 10_000
)

// keep holds back what a model says that does not lead.
func (d *decider) keep(commands []core.Command) {
	d.unsaid = append(d.unsaid, commands...)
	if over := len(d.unsaid) - maxUnsaid; over > 0 {
		d.unsaid = slices.Delete(d.unsaid, 0, over)
	}
}

// kept is what was held back and is still news.
func (d *decider) kept(now time.Time) []core.Command {
	kept := slices.DeleteFunc(d.unsaid, func(c core.Command) bool {
		say, ok := c.(core.Say)
		return ok && now.Sub(say.Doc.Time) > sayAgain
	})
	d.unsaid = nil
	return kept
}

// commit stores the decisions at the head of commands, and returns what follows them.
func (d *decider) commit(ctx context.Context, commands []core.Command) ([]core.Command, error) {
	var (
		batch []bus.Write
		spans []trace.Span
	)
	flush := func() error {
		err := d.store(ctx, batch)
		for _, s := range spans {
			s.End()
		}
		batch, spans = nil, nil
		return err
	}
	for i, c := range commands {
		decision, ok := c.(core.Commit)
		if !ok {
			return commands[i:], flush()
		}
		if len(batch)+len(decision.Writes) > maxBatch {
			if err := flush(); err != nil { // a decision is never split
				return nil, err
			}
		}
		spans = append(spans, begin(ctx, &decision))
		batch = append(batch, decision.Writes...)
	}
	return nil, flush()
}

// begin starts the span of a decision within the trace of its intent, and sends it along.
func begin(ctx context.Context, decision *core.Commit) trace.Span {
	if decision.Trace != "" {
		ctx = bus.ExtractTrace(ctx, nats.Header{"traceparent": {decision.Trace}})
	}
	ctx, span := otel.Tracer("proxyfleet/coordinator").Start(ctx, "decide", trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("messaging.destination.name", decision.Writes[0].Subject)))
	if trace.SpanContextFromContext(ctx).IsValid() {
		header := nats.Header{}
		bus.InjectTrace(ctx, header)
		for i := range decision.Writes {
			decision.Writes[i].Header = header
		}
	}
	return span
}

// store commits one batch. Whatever the server says but that we were replaced, the same
// batch is tried again: the model already counts on it.
func (d *decider) store(ctx context.Context, batch []bus.Write) error {
	if len(batch) == 0 {
		return nil
	}
	began := time.Now()
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, 5*time.Second
	for {
		err := d.term.leader.Commit(ctx, batch)
		if err == nil {
			break
		}
		if errors.Is(err, bus.ErrFenced) || ctx.Err() != nil || errors.Is(err, nats.ErrConnectionClosed) {
			return err
		}
		d.metrics.alarms.WithLabelValues("CommitRefused").Inc()
		d.log.Error("a decision could not be stored; nothing else is decided until it is", "messages", len(batch), "err", err)
		sleep(ctx, b.NextBackOff())
	}
	d.removals.note(batch, time.Now())
	d.metrics.commit.Observe(time.Since(began).Seconds())
	d.metrics.batch.Observe(float64(len(batch)))
	return nil
}

func (d *decider) dispatch(c core.Command) {
	switch c := c.(type) {
	case core.Put:
		d.term.inventory.put(c)
	case core.Delete:
		d.term.inventory.delete(c)
	case core.Say:
		d.term.crier.say(c)
	case core.Retire:
		if c.Assign.Seq != 0 {
			d.outdated = append(d.outdated, bus.Removal(c.Assign.Subject))
		}
		if c.State.Seq != 0 {
			d.term.tidier.add(c.State)
		}
	case core.ForgetLedger:
		d.outdated = append(d.outdated, bus.Removal(c.Entry.Subject))
	case core.Reply:
		d.requests[c.ID].reply <- c
		delete(d.requests, c.ID)
	case core.Alarm:
		d.metrics.alarms.WithLabelValues(c.Reason).Inc()
		d.log.Error(c.Message, "alarm", c.Reason)
	default:
		d.term.chores.add(c)
	}
}

// answer replies to those who wait for a verdict that has come.
func (d *decider) answer() {
	rest := d.awaits[:0]
	for _, a := range d.awaits {
		seq, bad := a.judge(d.model)
		if seq < a.seq {
			rest = append(rest, a)
			continue
		}
		a.reply <- verdict{seq, bad}
	}
	clear(d.awaits[len(rest):])
	d.awaits = rest
}
