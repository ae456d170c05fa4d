package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// HostLink is an agent's side of the bus. It needs no right to create or list anything.
// Its methods may be called concurrently.
type HostLink struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	names Names
	host  string
	log   *slog.Logger
	put   *putter

	// admit judges what the consumer says; set before Assignments.
	admit func(Installation, Admission) error

	mu     sync.Mutex // guards the fields that follow
	inst   Installation
	bound  bool
	gone   bool          // the consumer was not there at the last look
	speaks bool          // what is put may be published, by the last look
	lookAt uint64        // reconnects before the last look
	looked chan struct{} // closed and made anew at each look
}

// OpenHost returns the link of one host. It does not block. Close it when done.
func OpenHost(nc *nats.Conn, js jetstream.JetStream, names Names, host string, log *slog.Logger) *HostLink {
	l := &HostLink{nc: nc, js: js, names: names, host: host, log: log, looked: make(chan struct{})}
	l.put = newPutter(js, log, l.held)
	return l
}

// OnAdmission has judge asked what the consumer says, each time that it is looked up: at
// the start, after each reconnect, and every ten seconds. While judge returns an error
// nothing is pulled from it; it is looked up again within seconds. While that error is
// [ErrRefused], and before the first look, nothing of what is put is published: there is one
// subject for the host of a name, and what another one says there would replace it. Call it
// before anything is put, at most once.
func (l *HostLink) OnAdmission(judge func(Installation, Admission) error) { l.admit = judge }

// Delivery is one recorded-to-be assignment. Doc is nil for a marker (a deleted message):
// ack and ignore. A body that is not an assignment has Err.
type Delivery struct {
	Seq    uint64
	UID    string // of the subject
	Proxy  string
	Doc    *Assignment
	Err    error
	Header nats.Header
	// ConsumerSeq counts what the consumer delivered, from 1 on since it was made or reset;
	// Pending is how many it had still to deliver.
	ConsumerSeq, Pending uint64
}

// Assignments pulls the host's assignments, at most MaxPull at a time. handle must have
// them on disk when it returns nil; they are acked then. When it fails they come again
// after a while. It waits for the consumer to be made, rebinds with jittered backoff when
// it is deleted, and returns only when ctx ends.
func (l *HostLink) Assignments(ctx context.Context, handle func([]Delivery) error) error {
	retry := newRetry(retryMin, bindRetryMax)
	said := ""
	var cons jetstream.Consumer
	reconnected := l.nc.StatusChanged(nats.CONNECTED)
	defer l.nc.RemoveStatusListener(reconnected)
	for {
		err := l.bind(ctx, &cons, reconnected, handle, retry.reset)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			continue
		}
		if text := err.Error(); text != said { // once, not at every attempt
			l.log.Info("waiting for this host's assignments", "reason", text)
			said = text
		}
		select {
		case <-time.After(retry.delay()):
		case <-reconnected:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

const (
	bindRetryMax = 5 * time.Second
	// lookEvery is when an agent that pulls looks again at what its consumer says: another
	// host may have been admitted, or the leader may ask for something.
	lookEvery = 2 * pullExpiry
	// nakDelay is when assignments come again that could not be recorded.
	nakDelay = time.Second
)

// bind looks the consumer up and pulls from it until that fails, or it is to be looked up
// again (nil). The handle is kept for the next bind: it knows our pin, without which we would
// wait until the pin has expired.
func (l *HostLink) bind(ctx context.Context, cons *jetstream.Consumer, reconnected <-chan nats.Status, handle func([]Delivery) error, worked func()) error {
	began := time.Now()
	if err := l.lookUp(ctx, cons); err != nil {
		return err
	}
	worked()
	for time.Since(began) < lookEvery {
		if err := l.pull(ctx, *cons, reconnected, handle); err != nil {
			return err
		}
	}
	return nil
}

// lookUp makes or refreshes the handle, takes over what the consumer's metadata says, and has
// it judged.
func (l *HostLink) lookUp(ctx context.Context, cons *jetstream.Consumer) error {
	ctx, cancel := attempt(ctx)
	defer cancel()
	reconnects := l.nc.Stats().Reconnects
	var err error
	if *cons == nil {
		*cons, err = l.js.Consumer(ctx, l.names.Assignments(), l.names.Consumer(l.host))
	} else {
		_, err = (*cons).Info(ctx)
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		*cons = nil
		l.setGone()
		l.speak(true, reconnects) // or nobody would know that there is such a host
		return errors.New("the coordinator has not admitted this host yet")
	}
	if err != nil {
		return fmt.Errorf("look up the consumer: %w", err)
	}
	metadata := (*cons).CachedInfo().Config.Metadata
	i := installationOf(metadata)
	l.setAdmission(i)
	if l.admit == nil {
		return nil
	}
	err = l.admit(i, admissionOf(metadata))
	l.speak(!errors.Is(err, ErrRefused), reconnects)
	return err
}

// pull asks for MaxPull messages once and handles them as they come: the first at once,
// those that came meanwhile together. A pull that waits does not survive a reconnect, so
// one ends it.
func (l *HostLink) pull(ctx context.Context, cons jetstream.Consumer, reconnected <-chan nats.Status, handle func([]Delivery) error) error {
	// The server is told 90 % of the time left (see jetstream.FetchContext).
	pullCtx, cancel := context.WithTimeout(ctx, pullExpiry*10/9)
	defer cancel()
	batch, err := cons.Fetch(MaxPull, jetstream.FetchContext(pullCtx), jetstream.FetchPriorityGroup(pullGroup))
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	for {
		select {
		case <-reconnected:
			return errReconnected
		case m, ok := <-batch.Messages():
			if !ok {
				return pullError(batch.Error())
			}
			msgs := drain(m, batch.Messages())
			if err := l.take(msgs, handle); err != nil {
				return err
			}
		}
	}
}

// drain returns first and what is there already.
func drain(first jetstream.Msg, more <-chan jetstream.Msg) []jetstream.Msg {
	msgs := []jetstream.Msg{first}
	for len(msgs) < MaxPull {
		select {
		case m, ok := <-more:
			if !ok {
				return msgs
			}
			msgs = append(msgs, m)
		default:
			return msgs
		}
	}
	return msgs
}

// pullError leaves out the ends of a pull that only mean: pull again. Another pin is not
// one of them: who was given it may be another agent of the name.
func pullError(err error) error {
	switch {
	case err == nil,
		errors.Is(err, context.DeadlineExceeded), // of the pull; the caller looks at its own context
		errors.Is(err, nats.ErrTimeout):
		return nil
	}
	return fmt.Errorf("pull: %w", err)
}

// take hands messages to handle and acks them once it has them on disk.
func (l *HostLink) take(msgs []jetstream.Msg, handle func([]Delivery) error) error {
	ds := make([]Delivery, len(msgs))
	for i, m := range msgs {
		ds[i] = l.delivery(m)
	}
	if err := handle(ds); err != nil {
		for _, m := range msgs { // or they would come again after ackWait only
			_ = m.NakWithDelay(nakDelay)
		}
		return fmt.Errorf("record %d assignments: %w", len(ds), err)
	}
	for _, m := range msgs {
		if err := m.Ack(); err != nil {
			return fmt.Errorf("ack: %w", err)
		}
	}
	return nil
}

func (l *HostLink) delivery(m jetstream.Msg) Delivery {
	d := Delivery{Header: m.Headers()}
	if meta, err := m.Metadata(); err == nil {
		d.Seq, d.ConsumerSeq, d.Pending = meta.Sequence.Stream, meta.Sequence.Consumer, meta.NumPending
	}
	p, ok := l.names.Parse(m.Subject())
	if !ok || p.Kind != "assign" {
		d.Err = fmt.Errorf("subject %q is not one of an assignment", m.Subject())
		return d
	}
	d.Proxy, d.UID = p.Proxy, p.UID
	if len(m.Data()) == 0 {
		return d
	}
	doc, err := Decode[Assignment](m.Data())
	switch {
	case err != nil:
		d.Err = err
	case doc.UID != p.UID || doc.Proxy != p.Proxy:
		d.Err = fmt.Errorf("the assignment on %s is of proxy %q, uid %q", m.Subject(), doc.Proxy, doc.UID)
	default:
		d.Doc = &doc
	}
	return d
}

// Consumer tells installation and incarnation from the consumer's metadata; ok is false
// while there is no consumer yet. It is refreshed by Assignments at every bind.
func (l *HostLink) Consumer() (i Installation, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inst, l.bound
}

// NothingDelivered asks the server whether the host's consumer has delivered nothing since it
// was made or reset, and has nothing to deliver: no assignment of this host exists.
func (l *HostLink) NothingDelivered(ctx context.Context) (bool, error) {
	c, err := l.js.Consumer(ctx, l.names.Assignments(), l.names.Consumer(l.host))
	if err != nil {
		return false, fmt.Errorf("look up the consumer: %w", err)
	}
	info := c.CachedInfo()
	return info.Delivered.Consumer == 0 && info.NumPending == 0, nil
}

func (l *HostLink) setAdmission(i Installation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inst, l.bound, l.gone = i, true, false
}

func (l *HostLink) setGone() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
}

// NoConsumer reports whether the host's consumer was not there when [HostLink.Assignments]
// last looked: it was never made, or somebody deleted it.
func (l *HostLink) NoConsumer() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone
}
