package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Fleet is an opened installation, for coordinators. Its methods may be called
// concurrently.
type Fleet struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	names Names
	inst  Installation
	like  jetstream.StreamConfig // of the assignments: sizes buckets that are made anew
	log   *slog.Logger

	usage usageCache
}

// Open checks that every stream is there and belongs to installation id (any, when id is
// empty), and makes missing buckets anew, since they are derived. Missing streams are
// ErrNotBootstrapped.
func Open(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, names Names, id string, log *slog.Logger) (*Fleet, error) {
	found, err := findStreams(ctx, js, names)
	if err != nil {
		return nil, err
	}
	inst, complete, err := found.installation(id)
	switch {
	case err != nil:
		return nil, err
	case inst.ID == "":
		return nil, fmt.Errorf("%w: no stream of %s is there; run the bootstrap once", ErrNotBootstrapped, names.Assignments())
	case complete && len(found.missing) > 0:
		return nil, missingError(found.missing, inst)
	case !complete:
		return nil, fmt.Errorf("%w: the bootstrap of installation %s was cut short; run it again", ErrNotBootstrapped, inst.ID)
	}
	if err := openBuckets(ctx, js, names, found.assignments, inst); err != nil {
		return nil, err
	}
	return &Fleet{nc: nc, js: js, names: names, inst: inst, like: found.assignments, log: log}, nil
}

// Installation is what the streams said when the fleet was opened.
func (f *Fleet) Installation() Installation { return f.inst }

// Names are those that the fleet was opened with.
func (f *Fleet) Names() Names { return f.names }

// Msg is one stored message.
type Msg struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Header  nats.Header
	Data    []byte // empty for a delete marker or a message without a body
}

// lastMsg reads the newest message of a subject; ok is false where there is none.
func (f *Fleet) lastMsg(ctx context.Context, stream, subject string) (m Msg, ok bool, err error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		return Msg{}, false, fmt.Errorf("read %s: %w", subject, err)
	}
	raw, err := s.GetLastMsgForSubject(ctx, subject)
	if apiCode(err) == jetstream.JSErrCodeMessageNotFound {
		return Msg{}, false, nil
	}
	if err != nil {
		return Msg{}, false, fmt.Errorf("read %s: %w", subject, err)
	}
	return Msg{Subject: raw.Subject, Seq: raw.Sequence, Time: raw.Time, Header: raw.Header, Data: raw.Data}, true, nil
}

// EventWrite is an event to be stored.
type EventWrite struct {
	Subject string
	ID      string // of what the event is about
	Event   Event
}

// PublishEvents stores events in one round trip. After an error some of them may be stored;
// all can be repeated: within ten minutes an id is stored once.
func (f *Fleet) PublishEvents(ctx context.Context, events []EventWrite) error {
	ctx, cancel := attempt(ctx)
	defer cancel()
	acks := make([]jetstream.PubAckFuture, len(events))
	for i, e := range events {
		var err error
		if acks[i], err = f.js.PublishMsgAsync(&nats.Msg{Subject: e.Subject, Data: Encode(e.Event)}, jetstream.WithMsgID(e.ID)); err != nil {
			return fmt.Errorf("publish event on %s: %w", e.Subject, err)
		}
	}
	for i, ack := range acks {
		var err error
		select {
		case <-ack.Ok():
		case err = <-ack.Err():
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("publish event on %s: %w", events[i].Subject, err)
		}
	}
	return nil
}

// EventsOf reads the newest events of a subject, at most max, oldest first. What cannot be
// read is left out.
func (f *Fleet) EventsOf(ctx context.Context, subject string, max int) ([]Event, error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	cons, err := f.js.CreateConsumer(ctx, f.names.Events(), jetstream.ConsumerConfig{
		FilterSubject: subject, AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverAllPolicy,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: followInactive,
	})
	if err != nil {
		return nil, fmt.Errorf("read the events on %s: %w", subject, err)
	}
	defer f.js.DeleteConsumer(context.WithoutCancel(ctx), f.names.Events(), cons.CachedInfo().Name) //nolint:errcheck // it goes by itself
	events := []Event{}
	for left := cons.CachedInfo().NumPending; left > 0; {
		batch, err := cons.Fetch(int(min(left, 500)), jetstream.FetchContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read the events on %s: %w", subject, err)
		}
		got := uint64(0)
		for m := range batch.Messages() {
			if e, err := Decode[Event](m.Data()); err == nil {
				events = append(events, e)
			}
			got++
		}
		if err := batch.Error(); err != nil || got == 0 {
			return nil, fmt.Errorf("read the events on %s: %w", subject, cmp.Or(err, errors.New("they stopped coming")))
		}
		left -= min(left, got)
		if over := len(events) - max; over > 0 {
			events = events[over:]
		}
	}
	return events, nil
}

// PublishIntent stores an intent and returns its sequence. The trace context of ctx goes
// with it. ErrStreamFull past the alarm, unless the document asks for absence: that is what
// makes room again.
func (f *Fleet) PublishIntent(ctx context.Context, subject string, doc []byte) (uint64, error) {
	if err := f.refuseWhenFull(ctx, doc); err != nil {
		return 0, err
	}
	msg := &nats.Msg{Subject: subject, Data: doc, Header: nats.Header{}}
	InjectTrace(ctx, msg.Header)
	ctx, cancel := attempt(ctx)
	defer cancel()
	ack, err := f.js.PublishMsg(ctx, msg)
	if err != nil {
		return 0, fmt.Errorf("publish intent on %s: %w", subject, full(err, f.names.Intents()))
	}
	return ack.Sequence, nil
}

func (f *Fleet) refuseWhenFull(ctx context.Context, doc []byte) error {
	var want struct{ Desired Desired }
	if json.Unmarshal(doc, &want) == nil && want.Desired == DesiredAbsent {
		return nil
	}
	for _, stream := range []string{f.names.Intents(), f.names.Assignments(), f.names.States()} {
		used, err := f.usage.get(ctx, f, stream)
		if err != nil {
			return err
		}
		if used >= UsageAlarm {
			return &streamError{stream: stream, is: ErrStreamFull,
				cause: fmt.Errorf("%.0f %% used; nothing new is taken on from %.0f %%, so that deletions still fit", 100*used, 100*UsageAlarm)}
		}
	}
	return nil
}

// UsageAlarm is the usage from which on new intents are refused, so that tombstones still
// fit: a full stream refuses even an overwrite by a smaller message.
const UsageAlarm = 0.8

// Usage is how full a stream is, 0 to 1, by the nearest of its limits.
func (f *Fleet) Usage(ctx context.Context, stream string) (float64, error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("usage of stream %s: %w", stream, err)
	}
	info := s.CachedInfo()
	used := 0.0
	share := func(n uint64, limit int64) {
		if limit > 0 {
			used = max(used, float64(n)/float64(limit))
		}
	}
	share(info.State.Bytes, info.Config.MaxBytes)
	share(info.State.Msgs, info.Config.MaxMsgs)
	share(uint64(info.State.Consumers), int64(info.Config.MaxConsumers))
	return used, nil
}

// usageCache spares a request for every intent: usage moves slowly.
type usageCache struct {
	mu  sync.Mutex // guards the fields that follow
	at  map[string]time.Time
	was map[string]float64
}

const usageMaxAge = 2 * time.Second

func (c *usageCache) get(ctx context.Context, f *Fleet, stream string) (float64, error) {
	c.mu.Lock()
	at, was := c.at[stream], c.was[stream]
	c.mu.Unlock()
	if time.Since(at) < usageMaxAge {
		return was, nil
	}
	used, err := f.Usage(ctx, stream)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at, c.was = map[string]time.Time{}, map[string]float64{}
	}
	c.at[stream], c.was[stream] = time.Now(), used
	return used, nil
}

// Beats calls handle for every beat, until ctx ends. A beat that cannot be read is logged
// and left out.
func (f *Fleet) Beats(ctx context.Context, handle func(host string, b Beat)) error {
	sub, err := f.nc.SubscribeSync(f.names.AllBeats())
	if err != nil {
		return fmt.Errorf("listen for beats: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, nats.ErrSlowConsumer) { // said once by the error handler; beats come again
			continue
		}
		if err != nil {
			return fmt.Errorf("listen for beats: %w", err)
		}
		p, ok := f.names.Parse(msg.Subject)
		if !ok {
			continue
		}
		b, err := Decode[Beat](msg.Data)
		if err != nil {
			f.log.Warn("a beat cannot be read; it is left out", "host", p.Host, "err", err)
			continue
		}
		handle(p.Host, b)
	}
}
