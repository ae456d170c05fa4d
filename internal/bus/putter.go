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
	// maxPuts are in flight one by one, each on a goroutine.
	maxPuts = 64
	// manyPuts that wait go together, as batches of maxPutBatch at most: a server that syncs
	// every write syncs a batch once.
	manyPuts    = 64
	maxPutBatch = 500
	// singly is how long no batch is tried after one that was not stored.
	singly = 10 * time.Second
	// putTimeout is when the answer to a put counts as lost.
	putTimeout = 10 * time.Second
)

// putter publishes the newest message of each subject until it is stored: one in flight
// per subject, so that an older document never follows a newer one. Few go one by one, each
// acked as soon as it can be; many go as batches, one after another.
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
	batch   bool          // one is in flight
	noBatch time.Time     // none before
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
		p.hire()
	}
}

// hire has a goroutine for each subject that waits, up to maxPuts, but where they are to go
// with the batch after the one in flight. The caller holds mu.
func (p *putter) hire() {
	if p.batch && len(p.waiting) >= manyPuts {
		return
	}
	for p.workers < min(maxPuts, len(p.waiting)) {
		p.workers++
		p.wg.Go(p.work)
	}
}

// work goes through the subjects that wait.
func (p *putter) work() {
	for {
		p.allowed()
		switch subjects := p.next(); len(subjects) {
		case 0:
			return
		case 1:
			p.run(subjects[0])
		default:
			p.together(subjects)
		}
	}
}

// allowed waits until it may publish, or for the close.
func (p *putter) allowed() {
	for asked := p.held(); asked != nil && p.ctx.Err() == nil; asked = p.held() {
		select {
		case <-asked:
		case <-p.ctx.Done():
		}
	}
}

// next takes one of the subjects that wait, or many for a batch. There is none, and the
// goroutine that asks ends, where nothing waits or where a batch has to end first.
func (p *putter) next() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(1, len(p.waiting))
	if len(p.waiting) >= manyPuts && time.Now().After(p.noBatch) {
		n = min(len(p.waiting), maxPutBatch)
		if p.batch {
			n = 0
		}
	}
	if n == 0 {
		p.workers--
	}
	p.batch = p.batch || n > 1
	subjects := p.waiting[:n:n]
	p.waiting = p.waiting[n:]
	return subjects
}

// together publishes what is pending on many subjects as one batch. Those that are not stored
// then, or have become newer, wait again.
func (p *putter) together(subjects []string) {
	msgs := make([]*nats.Msg, len(subjects))
	p.mu.Lock()
	for i, subject := range subjects {
		msgs[i] = p.pending[subject]
		delete(p.pending, subject)
	}
	p.mu.Unlock()
	ctx, cancel := attemptOn(p.ctx, p.js.Conn())
	_, err := publishBatch(ctx, p.js, msgs)
	cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = false
	if err != nil {
		p.noBatch = time.Now().Add(singly)
		p.log.Debug("states were not stored together; going on one by one", "states", len(msgs), "err", err)
	}
	for i, subject := range subjects {
		if err != nil {
			p.giveBack(msgs[i])
		}
		if p.pending[subject] != nil && !p.closed {
			p.waiting = append(p.waiting, subject)
		} else {
			p.done(subject)
		}
	}
	p.hire()
}

// take returns the newest message of a subject, or ends the work on it.
func (p *putter) take(subject string) (*nats.Msg, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, ok := p.pending[subject]
	delete(p.pending, subject)
	if !ok || p.closed {
		p.done(subject)
		return nil, false
	}
	return m, true
}

// done ends the work on a subject. The caller holds mu.
func (p *putter) done(subject string) {
	close(p.busy[subject])
	delete(p.busy, subject)
	if len(p.busy) == 0 {
		close(p.idle)
	}
}

// giveBack makes m the newest again unless there is a newer one. The caller holds mu.
func (p *putter) giveBack(m *nats.Msg) {
	if _, newer := p.pending[m.Subject]; !newer {
		p.pending[m.Subject] = m
	}
}

// run publishes what is pending on one subject until nothing is.
func (p *putter) run(subject string) {
	retry := newRetry(retryMin, bindRetryMax)
	for {
		p.allowed() // take sees the close
		m, ok := p.take(subject)
		if !ok {
			return
		}
		err := p.publish(m)
		if err == nil {
			retry.reset()
			continue
		}
		p.mu.Lock()
		p.giveBack(m)
		p.mu.Unlock()
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
