package bus

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Leader writes under one fence. Commit is called by one goroutine at a time, so that one
// batch is in flight: with replicas, parallel fenced writes to one stream refuse each other.
// So is CommitBucket for one bucket. The other methods may be called beside them.
type Leader struct {
	fleet   *Fleet
	term    uint64
	holder  string
	fence   uint64            // sequence of our fence in the assignments
	buckets map[string]uint64 // and in each bucket
	last    atomic.Uint64     // highest sequence of what we stored in the assignments
	lost    string            // what shows that assignments are missing, or empty
}

// Lead rewrites the fence of the assignments and of every bucket: from then on no write of
// an earlier leader is stored. Call it with the lease taken, then Follow everything to its
// end, then write. ErrFenced: another one took over at the same moment.
func (f *Fleet) Lead(ctx context.Context, holder string) (*Leader, error) {
	l := &Leader{fleet: f, holder: holder, buckets: map[string]uint64{}}
	// Buckets are fenced after the assignments. One that has a later term was written behind a
	// backup from which the assignments were restored.
	for _, b := range bucketNames(f.names) {
		fence, _, err := f.readFence(ctx, bucketStream(b), bucketKey(b, FenceKey))
		if err == nil { // a bucket that is missing is made anew below
			l.term = max(l.term, fence.Term)
		}
	}
	old, seq, err := f.readFence(ctx, f.names.Assignments(), f.names.Fence())
	if err != nil {
		return nil, err
	}
	if l.term > old.Term {
		l.lost = fmt.Sprintf("the buckets were written in term %d, and the last that %s knows of is %d", l.term, f.names.Assignments(), old.Term)
	}
	l.term = max(l.term, old.Term) + 1
	if l.fence, err = l.writeFence(ctx, f.names.Assignments(), f.names.Fence(), seq); err != nil {
		return nil, err
	}
	l.last.Store(l.fence)
	for _, b := range bucketNames(f.names) {
		if err := l.fenceBucket(ctx, b); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Stored is the highest sequence in the assignments that this leader knows to be its own.
func (l *Leader) Stored() uint64 { return l.last.Load() }

// Term counts takeovers.
func (l *Leader) Term() uint64 { return l.term }

// Lost says what showed at the takeover that the stream of assignments was purged, or
// restored from a backup; empty where nothing did. Once our fence is written it shows no more.
func (l *Leader) Lost() string { return l.lost }

// readFence returns the fence under subject and its sequence; zeros where there is none.
func (f *Fleet) readFence(ctx context.Context, stream, subject string) (Fence, uint64, error) {
	m, ok, err := f.lastMsg(ctx, stream, subject)
	if err != nil || !ok {
		return Fence{}, 0, err
	}
	if len(m.Data) == 0 { // somebody deleted it
		return Fence{}, m.Seq, nil
	}
	doc, err := Decode[Fence](m.Data)
	if err != nil {
		return Fence{}, 0, fmt.Errorf("%s in stream %s is not a fence: %w", subject, stream, err)
	}
	return doc, m.Seq, nil
}

// writeFence stores our fence where the last one has the expected sequence, in a publish
// of its own. It repeats the write until its outcome is known.
func (l *Leader) writeFence(ctx context.Context, stream, subject string, expected uint64) (uint64, error) {
	nonce := NewULID()
	doc := Encode(Fence{Type: TypeFence, Term: l.term, Incarnation: l.fleet.inst.Incarnation, Holder: l.holder, Nonce: nonce})
	wait := newRetry(retryMin, retryMax)
	for {
		seq, err := l.sendFence(ctx, stream, &nats.Msg{Subject: subject, Data: doc}, expected)
		switch judge(err) {
		case stored:
			return seq, nil
		case refused:
			return 0, fmt.Errorf("write the fence of %s: %w", stream, full(err, stream))
		case wrongSeq:
			now, seq, readErr := l.fleet.readFence(ctx, stream, subject)
			if readErr == nil && now.Nonce == nonce {
				return seq, nil
			}
			if readErr == nil {
				return 0, fmt.Errorf("%w: term %d of %s", ErrFenced, now.Term, now.Holder)
			}
			err = errors.Join(err, readErr)
		}
		l.fleet.log.Debug("writing a fence again", "stream", stream, "reason", err)
		if wait.wait(ctx) != nil {
			return 0, fmt.Errorf("write the fence of %s: %w", stream, ended(ctx, err))
		}
	}
}

func (l *Leader) sendFence(ctx context.Context, stream string, m *nats.Msg, expected uint64) (uint64, error) {
	ctx, cancel := attemptOn(ctx, l.fleet.nc)
	defer cancel()
	ack, err := l.fleet.js.PublishMsg(ctx, m, jetstream.WithExpectStream(stream), jetstream.WithExpectLastSequencePerSubject(expected))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// Leads tells whether our fence still stands in the assignments: nil when it does, ErrFenced
// when another one has taken over. It may be called beside the other methods.
func (l *Leader) Leads(ctx context.Context) error {
	now, seq, err := l.fleet.readFence(ctx, l.fleet.names.Assignments(), l.fleet.names.Fence())
	if err != nil {
		return err
	}
	if seq != l.fence {
		return fmt.Errorf("%w: term %d of %s", ErrFenced, now.Term, now.Holder)
	}
	return nil
}

// Write is one message of a batch.
type Write struct {
	Subject string
	Data    []byte
	Header  nats.Header // traceparent
}

// Commit stores ledger entries, assignments and tombstones, in order. When the outcome is
// not known it repeats the same writes until they are acked or refused, or ctx ends.
// ErrFenced: the lead is lost, and nothing more is stored. After any other error,
// ErrStreamFull among them, the caller still leads; where ctx ended it must repeat the same
// writes before any other decision.
//
// It is one atomic batch, split at 1,000 messages, but for few writes on streams with one
// replica: those are stored one by one in their order, so that whatever interrupts them (a
// crash, a lost lead, a full stream) leaves the first few. The first write of a decision is
// therefore its ledger entry, and a takeover writes again what the ledger names and is
// missing.
//
// The reason is time. With one replica nats-server 2.15.3 makes and syncs a file store of
// its own for each batch, some ten milliseconds whatever its size. Writes that are sent at
// once take 20 to 50 µs each, or one sync each where the server syncs always. With more
// replicas a batch is kept in memory and is as fast as a single write.
func (l *Leader) Commit(ctx context.Context, writes []Write) error {
	msgs := make([]*nats.Msg, len(writes))
	for i, w := range writes {
		msgs[i] = &nats.Msg{Subject: w.Subject, Data: w.Data, Header: w.Header}
	}
	names := l.fleet.names
	to := target{stream: names.Assignments(), fence: names.Fence(), expected: l.fence, last: l.last.Load()}
	seq, err := l.commitAll(ctx, to, msgs)
	l.last.Store(max(l.last.Load(), seq)) // too low only costs a round trip
	if !errors.Is(err, errSequenceMoved) {
		return err
	}
	if err := l.Leads(ctx); err != nil {
		return err
	}
	return fmt.Errorf("stream %s refuses a batch although our fence stands", names.Assignments())
}

// target is a stream with our fence.
type target struct {
	stream   string
	fence    string // its subject
	expected uint64 // its sequence
	last     uint64 // expected last sequence of the stream, 0 where order does not matter
}

const (
	// fewWrites are cheaper one by one than as a batch where there is one replica, even if
	// the server syncs each.
	fewWrites = 16
	// window is how many writes that need no order are on their way at once.
	window = 256
)

// commitAll stores msgs and returns the sequence of the last one that is known to be stored,
// 0 for none.
func (l *Leader) commitAll(ctx context.Context, to target, msgs []*nats.Msg) (seq uint64, err error) {
	ordered := to.last > 0
	singly := l.fleet.like.Replicas == 1 && (!ordered || len(msgs) <= fewWrites)
	size := maxBatch
	if singly {
		size = 1
	}
	for len(msgs) > 0 {
		n := 0
		if singly && len(msgs) > 1 {
			n, seq = sendAtOnce(ctx, l.fleet.js, to, msgs[:min(len(msgs), window)])
		}
		if n == 0 { // one alone, a batch, or what was not stored: commit finds out why
			n = min(len(msgs), size)
			if seq, err = l.commit(ctx, to, msgs[:n]); err != nil {
				return to.last, err
			}
		}
		msgs = msgs[n:]
		if ordered {
			to.last = seq
		}
	}
	return seq, nil
}

// errSequenceMoved says that the fence is not at the expected sequence.
var errSequenceMoved = errors.New("the fence has moved")

// commit stores one batch and returns the sequence of its last message. Its error is
// errSequenceMoved, errStreamGone, or why the server refused it.
func (l *Leader) commit(ctx context.Context, to target, msgs []*nats.Msg) (uint64, error) {
	wait := newRetry(retryMin, retryMax)
	for {
		seq, err := publishFenced(ctx, l.fleet.js, to.fence, to.expected, msgs)
		switch judge(err) {
		case stored:
			return seq, nil
		case refused:
			return 0, fmt.Errorf("write %d messages to %s: %w", len(msgs), to.stream, full(err, to.stream))
		case noStream:
			gone, lookErr := l.gone(ctx, to.stream)
			if gone {
				return 0, &streamError{stream: to.stream, is: errStreamGone, cause: err}
			}
			err = errors.Join(err, lookErr)
		case wrongSeq:
			_, seq, readErr := l.fleet.readFence(ctx, to.stream, to.fence)
			if readErr == nil && seq != to.expected {
				return 0, errSequenceMoved
			}
			// Our fence stands: the answer is of no use, and a repeat is harmless.
			err = errors.Join(err, readErr)
		}
		l.fleet.log.Debug("repeating a batch", "stream", to.stream, "messages", len(msgs), "reason", err)
		if wait.wait(ctx) != nil {
			return 0, fmt.Errorf("write %d messages to %s, outcome not known: %w", len(msgs), to.stream, ended(ctx, err))
		}
	}
}

var errStreamGone = errors.New("the stream is not there")

func (l *Leader) gone(ctx context.Context, stream string) (bool, error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	_, err := l.fleet.js.Stream(ctx, stream)
	return errors.Is(err, jetstream.ErrStreamNotFound), err
}

// Removal is a write that ends what is stored on a subject: a message without a body that
// goes by itself after a minute. Readers ignore it, as every message without a body.
//
// Messages are not removed by their sequence, because a removal of the newest brings an
// older one back when the server is killed: the older one was only replaced, which is on
// disk nowhere, and of two messages the one that is not marked as removed is the last (seen
// on nats-server 2.15.3, with sync_interval always). A proxy that is gone would have its
// assignment again. Of what comes back in spite of this (when the server is killed soon
// after the minute) the newest is the document that the removal replaced, a tombstone.
func Removal(subject string) Write {
	return Write{Subject: subject, Header: nats.Header{jetstream.MsgTTLHeader: {removalTTL.String()}}}
}

// RemoveState is a [Removal] of a state, unless there is a newer one on its subject. It
// checks the fence first, and may be called beside Commit. One that has no sequence counts
// as removed.
func (l *Leader) RemoveState(ctx context.Context, state Msg) error {
	if state.Seq == 0 {
		return nil
	}
	if err := l.Leads(ctx); err != nil {
		return err
	}
	ctx, cancel := attempt(ctx)
	defer cancel()
	w := Removal(state.Subject)
	_, err := l.fleet.js.PublishMsg(ctx, &nats.Msg{Subject: w.Subject, Header: w.Header},
		jetstream.WithExpectStream(l.fleet.names.States()), jetstream.WithExpectLastSequencePerSubject(state.Seq))
	if judge(err) == wrongSeq {
		return nil // replaced, or removed already
	}
	if err != nil {
		return fmt.Errorf("remove state %s: %w", state.Subject, err)
	}
	return nil
}
