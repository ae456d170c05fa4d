package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

var (
	// ErrFenced says that another leader has taken over: nothing was written, and nothing
	// will be under this fence.
	ErrFenced = errors.New("another coordinator has taken the lead")
	// ErrLeaseHeld says that another coordinator leads.
	ErrLeaseHeld = errors.New("another coordinator leads")
	// ErrNotBootstrapped says that streams are missing; nothing is made by itself.
	ErrNotBootstrapped = errors.New("this fleet is not bootstrapped")
	// ErrWrongInstallation says that the streams belong to another installation.
	ErrWrongInstallation = errors.New("the streams belong to another installation")
	// ErrStreamFull says that a stream is over its limits.
	ErrStreamFull = errors.New("stream is full")
	// ErrStreamRegressed says that a stream's sequences went backwards or that it was made
	// anew: it was lost, recreated or restored. What was read before no longer holds.
	ErrStreamRegressed = errors.New("the stream was recreated or restored")
	// ErrRefused says that a host's consumer is another host's.
	ErrRefused = errors.New("this host is refused")
	// ErrBucketRecreated says that a bucket was missing, or lost its fence, and that what it
	// held is not known to be there: the caller writes everything again.
	ErrBucketRecreated = errors.New("bucket was missing and has been made anew")
)

// Codes that have no name in nats.go; see errors.json of nats-server.
const (
	codeNoPeers     jetstream.ErrorCode = 10005 // "no suitable peers for placement": too few servers are there, or have room
	codeStoreFailed jetstream.ErrorCode = 10077 // "maximum bytes exceeded" among others
)

// apiCode is the server's code in err, 0 where it is not an answer of the server.
func apiCode(err error) jetstream.ErrorCode {
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return js.APIError().ErrorCode
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// verdict is what an error of a fenced write means.
type verdict int

const (
	stored   verdict = iota
	refused          // by the server, for good: repeating changes nothing
	conflict         // nothing stored, repeat: another write was in flight, or the batch came incomplete
	wrongSeq         // 10071: the fence moved, or this very write was stored before
	noStream         // nobody listens on the subject
	unknown          // it may be stored or not
)

func judge(err error) verdict {
	switch code := apiCode(err); {
	case err == nil:
		return stored
	case code == jetstream.JSErrCodeStreamWrongLastSequence:
		return wrongSeq
	case code == jetstream.JSErrCodeStreamWrongLastSequenceConstant,
		code == jetstreamext.JSErrCodeBatchPublishIncomplete,
		code == jetstreamext.JSErrCodeAtomicPublishTooManyInflight,
		code == jetstreamext.JSErrCodeBatchPublishTooManyInflight:
		return conflict
	case code == jetstream.JSErrCodeStreamNotFound,
		errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return noStream
	case code != 0 && isTemporary(err):
		return unknown
	case code != 0:
		return refused
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
		return refused
	default: // timeouts, disconnects, answers that make no sense
		return unknown
	}
}

// isTemporary reports whether the server itself could not tell: 5xx, such as a stream
// without a leader.
func isTemporary(err error) bool {
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return js.APIError().Code >= 500 && js.APIError().ErrorCode != codeStoreFailed
	}
	return false
}

// full turns the server's refusal of a full stream into [ErrStreamFull].
func full(err error, stream string) error {
	if apiCode(err) == codeStoreFailed {
		return &streamError{stream: stream, is: ErrStreamFull, cause: err}
	}
	return err
}

// streamError names the stream that an error is about.
type streamError struct {
	stream string
	is     error
	cause  error
}

func (e *streamError) Error() string {
	s := "stream " + e.stream + ": " + e.is.Error()
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

func (e *streamError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.is}
	}
	return []error{e.is, e.cause}
}

// ended is ctx's own error where it has ended, else err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
