package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// followHeartbeat is the shortest that a pull may ask for; two missed ones mean that the
	// consumer is gone. Longer ones make recovery longer: an ordered push consumer with the
	// defaults took 19 s to come back after a server's restart.
	followHeartbeat = 500 * time.Millisecond
	followExpiry    = 30 * time.Second
	followInactive  = 30 * time.Second // the server forgets a reader that is gone after it
	followCheck     = 250 * time.Millisecond
)

// Follow delivers a stream's messages that match filter (empty: all), from its first
// sequence on, then live ones, until ctx ends or handle fails. caughtUp is called once,
// after the last message that was there when Follow began. It survives reconnects and
// server restarts without a gap in newest documents; when the stream's sequences went
// backwards or its incarnation changed (restored, recreated) it ends with
// [ErrStreamRegressed]. No durable is used. handle and caughtUp run on the caller's
// goroutine.
//
// Each connection to the stream is a short-lived pull consumer without acks that starts
// after the last sequence seen. Its own delivery numbers have no gaps; a gap, a missing
// heartbeat or a reconnect makes a new one.
func (f *Fleet) Follow(ctx context.Context, stream, filter string, handle func(Msg) error, caughtUp func()) error {
	r := &follower{fleet: f, stream: stream, filter: filter, handle: handle, caughtUp: caughtUp}
	retry := newRetry(retryMin, retryMax)
	for {
		start := time.Now()
		err := r.round(ctx)
		var stop *handlerError
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &stop):
			return stop.err
		case errors.Is(err, ErrStreamRegressed), errors.Is(err, nats.ErrConnectionClosed):
			return err
		}
		if time.Since(start) > retryMax { // it worked for a while
			retry.reset()
		}
		f.log.Debug("reading a stream anew", "stream", stream, "after", r.seq, "reason", err)
		if err := retry.wait(ctx); err != nil {
			return err
		}
	}
}

// follower is one Follow. It is used by one goroutine.
type follower struct {
	fleet    *Fleet
	stream   string
	filter   string
	handle   func(Msg) error
	caughtUp func() // nil once called

	seq    uint64    // of the last message delivered
	time   time.Time // its time in the stream: a restored stream has another message there
	last   uint64    // highest last sequence that the stream was seen with
	target uint64    // last sequence when Follow began
	began  bool
	behind behind
}

// behind is since when a stream says that it ends before what was seen of it; zero: it does
// not.
type behind struct{ since time.Time }

// believed reports whether that is so, and not only what a server says that has become the
// stream's leader a moment ago: it has all that was acked, but may not have applied it yet.
func (b *behind) believed(now time.Time, replicas int) bool {
	if b.since.IsZero() {
		b.since = now
	}
	return replicas == 1 || now.Sub(b.since) >= behindPatience
}

const behindPatience = 10 * time.Second

type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }

// round reads through one consumer until it fails.
func (r *follower) round(ctx context.Context) error {
	s, err := r.check(ctx)
	if err != nil {
		return err
	}
	reconnected := r.fleet.nc.StatusChanged(nats.CONNECTED)
	defer r.fleet.nc.RemoveStatusListener(reconnected)
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       r.seq + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		FilterSubject:     r.filter,
		InactiveThreshold: followInactive,
		MemoryStorage:     true,
		Replicas:          1,
	}
	cons, err := r.consumer(ctx, s, cfg)
	if err != nil {
		return fmt.Errorf("make a reader of %s: %w", r.stream, err)
	}
	defer r.drop(s, cons.CachedInfo().Name)
	if cons.CachedInfo().NumPending == 0 {
		r.caught()
	}
	msgs, err := cons.Messages(
		jetstream.PullMaxMessages(MaxPull*2),
		jetstream.PullHeartbeat(followHeartbeat),
		jetstream.PullExpiry(followExpiry),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return fmt.Errorf("read %s: %w", r.stream, err)
	}
	defer msgs.Stop()
	return r.read(ctx, cons, msgs, reconnected)
}

func (r *follower) consumer(ctx context.Context, s jetstream.Stream, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	return s.CreateConsumer(ctx, cfg)
}

func (r *follower) read(ctx context.Context, cons jetstream.Consumer, msgs jetstream.MessagesContext, reconnected <-chan nats.Status) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // a consumer in memory does not outlive its server
		select {
		case <-reconnected:
			cancel(errReconnected)
		case <-ctx.Done():
		}
	}()
	for delivered := uint64(1); ; {
		raw, err := r.next(ctx, msgs)
		if errors.Is(err, nats.ErrTimeout) { // only while not caught up
			if err := r.checkCaught(ctx, cons); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		meta, err := raw.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Consumer != delivered {
			return fmt.Errorf("message %d of the reader is missing", delivered)
		}
		delivered++
		if err := r.handle(Msg{Subject: raw.Subject(), Seq: meta.Sequence.Stream, Time: meta.Timestamp, Header: raw.Headers(), Data: raw.Data()}); err != nil {
			return &handlerError{err}
		}
		r.seq, r.time = meta.Sequence.Stream, meta.Timestamp
		if meta.NumPending == 0 || r.seq >= r.target {
			r.caught()
		}
	}
}

var errReconnected = errors.New("reconnected")

// next waits for a message; while not caught up only for a short time, since the message
// waited for may have been replaced or removed meanwhile.
func (r *follower) next(ctx context.Context, msgs jetstream.MessagesContext) (jetstream.Msg, error) {
	if r.caughtUp == nil {
		return msgs.Next(jetstream.NextContext(ctx))
	}
	short, cancel := context.WithTimeoutCause(ctx, followCheck, nats.ErrTimeout)
	defer cancel()
	m, err := msgs.Next(jetstream.NextContext(short))
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return nil, nats.ErrTimeout
	}
	return m, err
}

func (r *follower) checkCaught(ctx context.Context, cons jetstream.Consumer) error {
	ctx, cancel := attempt(ctx)
	defer cancel()
	info, err := cons.Info(ctx)
	if err != nil {
		return err
	}
	if info.NumPending == 0 && info.Delivered.Stream <= r.seq {
		r.caught()
	}
	return nil
}

func (r *follower) caught() {
	if r.caughtUp != nil {
		r.caughtUp()
		r.caughtUp = nil
	}
}

// check compares the stream with what was seen of it before.
func (r *follower) check(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	s, err := r.fleet.js.Stream(ctx, r.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) && r.began {
		return nil, &streamError{stream: r.stream, is: ErrStreamRegressed, cause: err}
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", r.stream, err)
	}
	info := s.CachedInfo()
	regressed := func(format string, args ...any) error {
		return &streamError{stream: r.stream, is: ErrStreamRegressed, cause: fmt.Errorf(format, args...)}
	}
	if now := installationOf(info.Config.Metadata); now != r.fleet.inst {
		return nil, regressed("it was of incarnation %s and is of %q now", r.fleet.inst.Incarnation, now.Incarnation)
	}
	if seen := max(r.last, r.seq); info.State.LastSeq >= seen {
		r.behind = behind{}
	} else if r.behind.believed(time.Now(), info.Config.Replicas) {
		return nil, regressed("its last sequence was %d and is %d now", seen, info.State.LastSeq)
	} else {
		return nil, fmt.Errorf("stream %s ends at %d, and %d was seen: its leader may be new", r.stream, info.State.LastSeq, seen)
	}
	if r.seq > 0 {
		m, err := s.GetMsg(ctx, r.seq)
		if err == nil && !m.Time.Equal(r.time) {
			return nil, regressed("sequence %d holds another message than before", r.seq)
		}
	}
	r.last = info.State.LastSeq
	if !r.began {
		r.began, r.target = true, info.State.LastSeq
	}
	return s, nil
}

// drop removes the consumer; where that fails the server does so after followInactive.
func (r *follower) drop(s jetstream.Stream, name string) {
	if !r.fleet.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.DeleteConsumer(ctx, name)
}

// End tells up to which sequence a stream has stored something, and on how many subjects
// something is stored.
func (f *Fleet) End(ctx context.Context, stream string) (seq, subjects uint64, err error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		return 0, 0, fmt.Errorf("look up stream %s: %w", stream, err)
	}
	state := s.CachedInfo().State
	return state.LastSeq, state.NumSubjects, nil
}

// Next is the sequence of the first message that is stored behind seq; 0: there is none.
func (f *Fleet) Next(ctx context.Context, stream string, seq uint64) (uint64, error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", stream, err)
	}
	m, err := s.GetMsg(ctx, seq+1, jetstream.WithGetMsgSubject(">"))
	if apiCode(err) == jetstream.JSErrCodeMessageNotFound {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read stream %s behind %d: %w", stream, seq, err)
	}
	return m.Sequence, nil
}
