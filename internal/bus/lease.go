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

	mu   sync.Mutex // guards the fields that follow, held through a write
	seq  uint64     // of our lease message; 0: not ours
	dead uint64     // sequence of somebody's lease that Wait saw unchanged for a ttl; 0: none
}

// NewLease names the candidate, uniquely among coordinators. ttl is raised to MinLeaseTTL.
func (f *Fleet) NewLease(holder string, ttl time.Duration) *Lease {
	return &Lease{fleet: f, holder: holder, ttl: max(ttl, MinLeaseTTL), nonce: NewULID()}
}

// Acquire takes the lease, or returns ErrLeaseHeld. A lease that holder already holds
// (its process was restarted) is taken over, and so is one that Wait found not renewed.
func (l *Lease) Acquire(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq, holder, err := l.read(ctx)
	if err != nil {
		return err
	}
	if holder != "" && holder != l.holder && seq != l.dead {
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
		return fmt.Errorf("write the lease: %w; %w", err, readErr)
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

// Wait returns when the lease may be taken: it was released, it expired, or the server shows
// the same renewal for a whole ttl; or when ctx ended. It looks once after each renewal that
// it hears, and then when the next one is overdue.
//
// It does not wait until the server removes the lease, which may take a second more. Time
// in which the server does not answer does not count: the leader could not renew either.
func (l *Lease) Wait(ctx context.Context) error {
	heard := make(chan *nats.Msg, 16)
	sub, err := l.fleet.nc.ChanSubscribe(l.fleet.names.Lease(), heard)
	if err != nil {
		return fmt.Errorf("wait for the lease: %w", err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed
	reconnected := l.fleet.nc.StatusChanged(nats.CONNECTED)
	defer l.fleet.nc.RemoveStatusListener(reconnected)
	look := time.NewTimer(0)
	defer look.Stop()
	var w watched
	said := false
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-reconnected:
			w.seq = 0
			look.Reset(0)
		case m := <-heard:
			doc, err := Decode[LeaseDoc](m.Data)
			w.heard, w.released = time.Now(), err == nil && doc.Holder == ""
			look.Reset(lookSoon) // it is stored a moment after it is heard
		case <-look.C:
			asked := time.Now()
			seq, holder, err := l.read(ctx)
			if err == nil && (holder == "" || holder == l.holder) {
				return nil
			}
			if errors.Is(err, jetstream.ErrStreamNotFound) && !said {
				said = true
				l.fleet.log.Warn("the lease's stream is gone, and nobody takes over without it; bootstrap --remake makes it anew", "stream", l.fleet.names.LeaseStream())
			}
			if err != nil || time.Since(asked) > l.ttl/4 {
				seq = 0
			}
			if w.overdue(seq, asked, l.ttl) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.dead = seq
				return nil
			}
			look.Reset(w.next(l.ttl))
		}
	}
}

// watched is what a standby knows of somebody's lease.
type watched struct {
	seq      uint64    // of the renewal that was seen last; 0: not known
	since    time.Time // it has been there since then at the latest
	heard    time.Time // when the last write was heard
	released bool      // which was a release
}

const (
	// lookSoon is when a write that was heard should be stored.
	lookSoon = 20 * time.Millisecond
	// lookOften is the longest time between two looks: the leader's lease may live for less
	// than ours would, and expire.
	lookOften = 2 * time.Second
)

// overdue takes in what the server showed when it was asked, 0 where it did not answer, and
// tells whether that has been the same for a ttl.
func (w *watched) overdue(seq uint64, asked time.Time, ttl time.Duration) bool {
	if seq != 0 && seq == w.seq {
		return asked.Sub(w.since) >= ttl
	}
	w.seq, w.since = seq, time.Now()
	if seq != 0 && asked.Sub(w.heard) < ttl/4 {
		w.since = w.heard
	}
	return false
}

// next is when to look again: when the next renewal is overdue, or soon where something is
// expected or not known.
func (w *watched) next(ttl time.Duration) time.Duration {
	if w.released {
		return lookSoon
	}
	if w.seq == 0 {
		return ttl / 8
	}
	return min(max(lookSoon, ttl-time.Since(w.since)), lookOften)
}
