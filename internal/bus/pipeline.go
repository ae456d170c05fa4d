package bus

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// sendAtOnce sends msgs in their order without waiting for an answer in between, so that
// they take one round trip together. It returns how many from the first on were stored for
// sure, and the sequence of the last of those; what became of the others is not known.
//
// Where order matters (to.last is set) each message but the first expects to come directly
// behind the one before it, by the last sequence of the stream. So one is never stored when
// an earlier one was refused: for want of room, or because the fence was rewritten in
// between, which is a message as well. Somebody else's write in between has the same effect.
func sendAtOnce(ctx context.Context, js jetstream.JetStream, to target, msgs []*nats.Msg) (n int, seq uint64) {
	ctx, cancel := attemptOn(ctx, js.Conn())
	defer cancel()
	acks := make([]jetstream.PubAckFuture, 0, len(msgs))
	for i, m := range msgs {
		opts := fenced(to.expected, to.fence)
		if to.last > 0 && i > 0 {
			opts = append(opts, jetstream.WithExpectLastSequence(to.last+uint64(i)))
		}
		ack, err := js.PublishMsgAsync(copyMsg(m), opts...)
		if err != nil {
			break
		}
		acks = append(acks, ack)
	}
	for n, ack := range acks {
		select {
		case a := <-ack.Ok():
			seq = a.Sequence
		case <-ack.Err():
			return n, seq
		case <-ctx.Done():
			return n, seq
		}
	}
	return len(acks), seq
}
