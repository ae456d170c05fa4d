package bus

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// maxBatch is the server's limit on an atomic batch.
const maxBatch = 1000

// publishFenced sends msgs once, all or none of them, while the last message of the
// fence's subject has the expected sequence. It returns the sequence of the last one.
func publishFenced(ctx context.Context, js jetstream.JetStream, fence string, expected uint64, msgs []*nats.Msg) (uint64, error) {
	ctx, cancel := attemptOn(ctx, js.Conn())
	defer cancel()
	if len(msgs) > 1 {
		// The expectation stands on the first message alone: the server refuses it on a later one.
		return publishBatch(ctx, js, msgs, jetstreamext.WithBatchExpectLastSequenceForSubject(expected, fence))
	}
	ack, err := js.PublishMsg(ctx, copyMsg(msgs[0]), fenced(expected, fence)...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func fenced(expected uint64, fence string) []jetstream.PublishOpt {
	return []jetstream.PublishOpt{
		jetstream.WithExpectLastSequenceForSubject(expected, fence),
		jetstream.WithRetryAttempts(0), // the caller decides on repeats
	}
}

// publishBatch sends msgs once as an atomic batch, the first one with options of its own, and
// returns the sequence of the last one. Messages are copied, so that the same ones can be sent
// again.
func publishBatch(ctx context.Context, js jetstream.JetStream, msgs []*nats.Msg, first ...jetstreamext.BatchMsgOpt) (uint64, error) {
	// Waiting for an ack of the first message would cost a round trip, and tell nothing
	// that the commit does not.
	batch, err := jetstreamext.NewBatchPublisher(js, jetstreamext.BatchFlowControl{})
	if err != nil {
		return 0, err
	}
	last := len(msgs) - 1
	for i, m := range msgs[:last] {
		opts := first
		if i > 0 {
			opts = nil
		}
		if err := batch.AddMsg(copyMsg(m), opts...); err != nil {
			return 0, err
		}
	}
	ack, err := batch.CommitMsg(ctx, copyMsg(msgs[last]))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// copyMsg is a message that a client library may write into.
func copyMsg(m *nats.Msg) *nats.Msg {
	return &nats.Msg{Subject: m.Subject, Data: m.Data, Header: cloneHeader(m.Header)}
}

func cloneHeader(h nats.Header) nats.Header {
	c := make(nats.Header, len(h)+4)
	for k, v := range h {
		c[k] = append([]string(nil), v...)
	}
	return c
}
