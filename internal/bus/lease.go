package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MinLeaseTTL is the shortest life of a message that the server supports.
const MinLeaseTTL = time.Second

// Lease is the leader's sign of life. It only tells that somebody leads: what keeps an
// earlier leader from writing is the fence (see [Fleet.Lead]). Its methods may be called
// concurrently.
type Lease struct {
	fleet  *Fleet
	holder string
	ttl    time.Duration
	nonce  string // of this Lease: tells its own writes from those of a process before it

	mu  sync.Mutex // guards the field that follows, held through a write
	seq uint64     // of our lease message; 0: not ours
}

// NewLease names the candidate, uniquely among coordinators. ttl is raised to MinLeaseTTL.
func (f *Fleet) NewLease(holder string, ttl time.Duration) *Lease {
	return &Lease{fleet: f, holder: holder, ttl: max(ttl, MinLeaseTTL), nonce: NewULID()}
}

// Acquire takes the lease, or returns ErrLeaseHeld. A lease that holder already holds
// (its process was restarted) is taken over.
func (l *Lease) Acquire(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq, holder, err := l.read(ctx)
	if err != nil {
		return err
	}
	if holder != "" && holder != l.holder {
		return fmt.Errorf("%w: %s", ErrLeaseHeld, holder)
	}
	return l.writeLocked(ctx, l.holder, seq)
}

// Renew extends it; ErrLeaseHeld when it was lost. Any other error leaves open whether it
// was renewed: call it again.
func (l *Lease) Renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seq == 0 {
		return fmt.Errorf("%w: it was not acquired", ErrLeaseHeld)
	}
	return l.writeLocked(ctx, l.holder, l.seq)
}

// Release gives it up, so that a standby takes over at once. A lease that is not held any
// more is left alone.
func (l *Lease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seq == 0 {
		return nil
	}
	err := l.writeLocked(ctx, "", l.seq)
	l.seq = 0
	if errors.Is(err, ErrLeaseHeld) {
		return nil
	}
	return err
}

// writeLocked stores a lease document if the stream's last sequence is still the expected
// one. An outcome that was not known is settled by reading. l.mu is held.
func (l *Lease) writeLocked(ctx context.Context, holder string, expected uint64) error {
	seq, err := l.send(ctx, holder, expected)
	if err == nil {
		l.seq = seq
		return nil
	}
	v := judge(err)
	if v != wrongSeq && v != unknown {
		return fmt.Errorf("write the lease: %w", err)
	}
	m, ok, readErr := l.fleet.lastMsg(ctx, l.fleet.names.LeaseStream(), l.fleet.names.Lease())
	if readErr != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	doc, _ := Decode[LeaseDoc](m.Data)
	switch {
	case ok && doc.Nonce == l.nonce: // this write, or an earlier one, was stored and its answer lost
		l.seq = m.Seq
		if doc.Holder == holder {
			return nil
		}
	case v == wrongSeq:
		l.seq = 0
		return fmt.Errorf("%w: %s", ErrLeaseHeld, doc.Holder)
	}
	return fmt.Errorf("write the lease: %w", err)
}

// send publishes once. Half a ttl is left for reading and another attempt.
func (l *Lease) send(ctx context.Context, holder string, expected uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, min(l.ttl/2, apiTimeout))
	defer cancel()
	msg := &nats.Msg{Subject: l.fleet.names.Lease(), Data: Encode(LeaseDoc{Type: TypeLease, Holder: holder, Nonce: l.nonce})}
	ack, err := l.fleet.js.PublishMsg(ctx, msg, jetstream.WithMsgTTL(l.ttl), jetstream.WithExpectLastSequence(expected))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// read returns who holds the lease (empty: nobody) and the stream's last sequence.
func (l *Lease) read(ctx context.Context) (last uint64, holder string, err error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	s, err := l.fleet.js.Stream(ctx, l.fleet.names.LeaseStream())
	if err != nil {
		return 0, "", fmt.Errorf("read the lease: %w", err)
	}
	last = s.CachedInfo().State.LastSeq
	m, err := s.GetLastMsgForSubject(ctx, l.fleet.names.Lease())
	if apiCode(err) == jetstream.JSErrCodeMessageNotFound {
		return last, "", nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("read the lease: %w", err)
	}
	if len(m.Data) == 0 { // a marker
		return max(last, m.Sequence), "", nil
	}
	doc, err := Decode[LeaseDoc](m.Data)
	if err != nil {
		return 0, "", fmt.Errorf("read the lease: %w", err)
	}
	return max(last, m.Sequence), doc.Holder, nil
}

// Wait returns when the lease may be free: it expired, was released, or ctx ended. A
// renewal that it hears puts the next look off by one ttl; it asks the server only when it
// heard none.
func (l *Lease) Wait(ctx context.Context) error {
	heard := make(chan *nats.Msg, 16)
	sub, err := l.fleet.nc.ChanSubscribe(l.fleet.names.Lease(), heard)
	if err != nil {
		return fmt.Errorf("wait for the lease: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case m := <-heard:
			doc, err := Decode[LeaseDoc](m.Data)
			if err == nil && doc.Holder == "" {
				look.Reset(0) // it is stored a moment after it is heard
				continue
			}
			look.Reset(l.ttl)
		case <-look.C:
			_, holder, err := l.read(ctx)
			if err == nil && (holder == "" || holder == l.holder) {
				return nil
			}
			look.Reset(l.ttl / 8)
		}
	}
}
