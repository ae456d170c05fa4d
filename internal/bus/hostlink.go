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

	mu    sync.Mutex // guards the fields that follow
	inst  Installation
	as    Admission
	bound bool
	gone  bool // the consumer was not there at the last look
}

// OpenHost returns the link of one host. It does not block. Close it when done.
func OpenHost(nc *nats.Conn, js jetstream.JetStream, names Names, host string, log *slog.Logger) *HostLink {
	return &HostLink{nc: nc, js: js, names: names, host: host, log: log, put: newPutter(js, log)}
}

// OnAdmission has judge asked what the consumer says, each time that it is looked up.
// While judge returns an error nothing is pulled from it; it is looked up again within
// seconds. Call it before [HostLink.Assignments], at most once.
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
	for {
		err := l.bind(ctx, &cons, handle, retry.reset)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if text := err.Error(); text != said { // once, not at every attempt
			l.log.Info("waiting for this host's assignments", "reason", text)
			said = text
		}
		if err := retry.wait(ctx); err != nil {
			return err
		}
	}
}

const (
	bindRetryMax = 5 * time.Second
	// nakDelay is when assignments come again that could not be recorded.
	nakDelay = time.Second
)

// bind looks the consumer up and pulls from it until that fails. The handle is kept for
// the next bind: it knows our pin, without which we would wait until the pin has expired.
func (l *HostLink) bind(ctx context.Context, cons *jetstream.Consumer, handle func([]Delivery) error, worked func()) error {
	if err := l.lookUp(ctx, cons); err != nil {
		return err
	}
	if i, as := l.seen(); l.admit != nil {
		if err := l.admit(i, as); err != nil {
			return err
		}
	}
	worked()
	reconnected := l.nc.StatusChanged(nats.CONNECTED)
	defer l.nc.RemoveStatusListener(reconnected)
	for {
		if err := l.pull(ctx, *cons, reconnected, handle); err != nil {
			return err
		}
	}
}

// lookUp makes or refreshes the handle and takes over what the consumer's metadata says.
func (l *HostLink) lookUp(ctx context.Context, cons *jetstream.Consumer) error {
	ctx, cancel := attempt(ctx)
	defer cancel()
	var err error
	if *cons == nil {
		*cons, err = l.js.Consumer(ctx, l.names.Assignments(), l.names.Consumer(l.host))
	} else {
		_, err = (*cons).Info(ctx)
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		*cons = nil
		l.setGone()
		return errors.New("the coordinator has not admitted this host yet")
	}
	if err != nil {
		return fmt.Errorf("look up the consumer: %w", err)
	}
	metadata := (*cons).CachedInfo().Config.Metadata
	l.setAdmission(installationOf(metadata), admissionOf(metadata))
	return nil
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

func (l *HostLink) setAdmission(i Installation, as Admission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inst, l.as, l.bound, l.gone = i, as, true, false
}

func (l *HostLink) seen() (Installation, Admission) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inst, l.as
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

// PutState publishes a state, newest wins per subject, and repeats it until it is stored.
// It never blocks.
func (l *HostLink) PutState(s State, header nats.Header) {
	l.put.put(&nats.Msg{Subject: l.names.StateProxy(l.host, s.Proxy, s.UID), Data: Encode(s), Header: header})
}

// PutHost is PutState for the host document.
func (l *HostLink) PutHost(h Host) {
	l.put.put(&nats.Msg{Subject: l.names.StateHost(l.host), Data: Encode(h)})
}

// Beat publishes a beat; it is lost while disconnected.
func (l *HostLink) Beat(b Beat) error {
	if !l.nc.IsConnected() { // or it would be kept, and be old when it is sent
		return nats.ErrDisconnected
	}
	return l.nc.Publish(l.names.Beat(l.host), Encode(b))
}

// Flush waits until everything put was stored, or ctx ends.
func (l *HostLink) Flush(ctx context.Context) error { return l.put.flush(ctx) }

// FlushState waits until the newest state put of a uid was stored, or ctx ends.
func (l *HostLink) FlushState(ctx context.Context, proxy, uid string) error {
	return l.put.flushSubject(ctx, l.names.StateProxy(l.host, proxy, uid))
}

// Close stops the publisher and waits for its goroutines; what was not stored is dropped.
func (l *HostLink) Close() { l.put.close() }
