package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// KVWrite sets a key, or purges it when Value is nil.
type KVWrite struct {
	Key   string
	Value []byte
}

// CommitBucket is Commit for one bucket. A bucket that is missing is made anew and reported
// as ErrBucketRecreated: the caller writes everything again. So is one that was made anew by
// somebody else.
func (l *Leader) CommitBucket(ctx context.Context, bucket string, writes []KVWrite) error {
	msgs := make([]*nats.Msg, len(writes))
	for i, w := range writes {
		msgs[i] = w.msg(bucket)
	}
	_, err := l.commitAll(ctx, target{stream: bucketStream(bucket), fence: bucketKey(bucket, FenceKey), expected: l.buckets[bucket]}, msgs)
	if errors.Is(err, errStreamGone) || errors.Is(err, errSequenceMoved) {
		return l.RegainBucket(ctx, bucket)
	}
	return err
}

// msg is the message that the client library would write for the same change.
func (w KVWrite) msg(bucket string) *nats.Msg {
	m := &nats.Msg{Subject: bucketKey(bucket, w.Key), Data: w.Value}
	if w.Value == nil {
		m.Header = nats.Header{
			"KV-Operation":         {"PURGE"},
			jetstream.MsgRollup:    {jetstream.MsgRollupSubject},
			jetstream.MsgTTLHeader: {markerTTL.String()},
		}
	}
	return m
}

// RegainBucket puts our fence into a bucket that is missing or lost it, unless somebody
// else leads, and returns ErrBucketRecreated.
func (l *Leader) RegainBucket(ctx context.Context, bucket string) error {
	if err := l.Leads(ctx); err != nil {
		return err
	}
	if _, err := openBucket(ctx, l.fleet.js, bucket, l.fleet.like, l.fleet.inst); err != nil {
		return err
	}
	if err := l.fenceBucket(ctx, bucket); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrBucketRecreated, bucket)
}

// fenceBucket writes our fence into a bucket. A fence of a later term stays: it is of a
// leader that took over from us after we rewrote the fence of the assignments.
func (l *Leader) fenceBucket(ctx context.Context, bucket string) error {
	stream, subject := bucketStream(bucket), bucketKey(bucket, FenceKey)
	old, seq, err := l.fleet.readFence(ctx, stream, subject)
	if err != nil {
		return err
	}
	if old.Term > l.term {
		return fmt.Errorf("%w: term %d of %s", ErrFenced, old.Term, old.Holder)
	}
	l.buckets[bucket], err = l.writeFence(ctx, stream, subject, seq)
	return err
}
