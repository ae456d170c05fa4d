package bus

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// maxPuts are in flight at once, each on a goroutine, far below the 4,000 from which the
	// client library stalls.
	maxPuts = 256
	// putTimeout is when the answer to a put counts as lost.
	putTimeout = 10 * time.Second
)

// putter publishes the newest message of each subject until it is stored: one in flight
// per subject, so that an older document never follows a newer one.
type putter struct {
	js     jetstream.JetStream
	log    *slog.Logger
	ctx    context.Context // ends at close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	held   func() <-chan struct{} // nil while it may publish; else closed when to ask again

	mu      sync.Mutex               // guards the fields that follow
	pending map[string]*nats.Msg     // subject → newest that is not in flight
	busy    map[string]chan struct{} // subjects that wait or are worked on; closed when all of one is stored
	waiting []string                 // those of busy that no goroutine has taken up yet
	workers int
	idle    chan struct{} // closed while nothing is pending or busy
	closed  bool
}

func newPutter(js jetstream.JetStream, log *slog.Logger, held func() <-chan struct{}) *putter {
	ctx, cancel := context.WithCancel(context.Background())
	p := &putter{js: js, log: log, ctx: ctx, cancel: cancel, held: held,
		pending: map[string]*nats.Msg{}, busy: map[string]chan struct{}{}, idle: make(chan struct{})}
	close(p.idle)
	return p
}

func (p *putter) put(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if len(p.busy) == 0 {
		p.idle = make(chan struct{})
	}
	p.pending[m.Subject] = m
	if p.busy[m.Subject] == nil {
		p.busy[m.Subject] = make(chan struct{})
		p.waiting = append(p.waiting, m.Subject)
		if p.workers < maxPuts {
			p.workers++
			p.wg.Go(p.work)
		}
	}
}

// work goes through the subjects that wait.
func (p *putter) work() {
	for {
		p.mu.Lock()
		if len(p.waiting) == 0 {
			p.workers--
			p.mu.Unlock()
			return
		}
		subject := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.mu.Unlock()
		p.run(subject)
	}
}

// take returns the newest message of a subject, or ends the work on it.
func (p *putter) take(subject string) (*nats.Msg, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.pending[subject]
	delete(p.pending, subject)
	if !ok || p.closed {
		close(p.busy[subject])
		delete(p.busy, subject)
		if len(p.busy) == 0 {
			close(p.idle)
		}
		return nil, false
	}
	return m, true
}

// giveBack makes m the newest again unless there is a newer one.
func (p *putter) giveBack(m *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, newer := p.pending[m.Subject]; !newer {
		p.pending[m.Subject] = m
	}
}

// run publishes what is pending on one subject until nothing is.
func (p *putter) run(subject string) {
	retry := newRetry(retryMin, bindRetryMax)
	for {
		m, ok := p.take(subject)
		if !ok {
			return
		}
		if asked := p.held(); asked != nil {
			p.giveBack(m)
			select {
			case <-asked:
			case <-p.ctx.Done(): // take sees the close
			}
			continue
		}
		err := p.publish(m)
		if err == nil {
			retry.reset()
			continue
		}
		p.giveBack(m)
		if retry.next >= retryMax { // not for the short gaps of a reconnect
			p.log.Warn("a state was not stored; trying again until it is", "subject", subject, "err", err)
		}
		_ = retry.wait(p.ctx) // take sees the close
	}
}

func (p *putter) publish(m *nats.Msg) error {
	ack, err := p.js.PublishMsgAsync(copyMsg(m), jetstream.WithStallWait(putTimeout))
	if err != nil {
		return err
	}
	timeout := time.NewTimer(putTimeout)
	defer timeout.Stop()
	select {
	case <-ack.Ok():
		return nil
	case err := <-ack.Err():
		return err
	case <-timeout.C:
		return nats.ErrTimeout
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

func (p *putter) flush(ctx context.Context) error {
	p.mu.Lock()
	idle := p.idle
	p.mu.Unlock()
	return p.await(ctx, idle)
}

// flushSubject waits until nothing of subject is pending or in flight.
func (p *putter) flushSubject(ctx context.Context, subject string) error {
	p.mu.Lock()
	done := p.busy[subject]
	p.mu.Unlock()
	if done == nil {
		return nil
	}
	return p.await(ctx, done)
}

// await waits for done; what a close dropped was not stored.
func (p *putter) await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return p.ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *putter) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
}
