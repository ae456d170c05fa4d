package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/backends"
)

// loop has one driver for each recorded uid. It is a goroutine per uid rather than a shared
// queue: what a key waits for is then a plain select, an idle one costs a few KiB, and calls
// for one uid follow one another by construction. The slots bound the calls to the backend
// and run them.
type loop struct {
	backend  backends.Backend
	record   *record
	out      *reporter
	defaults backends.Defaults
	policy   policy
	probe    func(context.Context, observed) error
	log      *slog.Logger

	ensures, deletes, reads slots

	mu      sync.Mutex // guards the fields that follow
	drivers map[string]*driver
	ctx     context.Context // of the drivers; nil until start
	wg      sync.WaitGroup
}

// slots run calls to a backend, a few at a time.
type slots struct {
	n     int
	calls chan func()
}

func newSlots(n int) slots { return slots{n: n, calls: make(chan func())} }

// start makes the slots; wg waits for their end, which is that of ctx. Calls run on
// goroutines of the slots' own because they go deep: on its uid's goroutine each would grow
// another stack, for the collector to shrink again, a third of what a flood of proxies costs.
func (s slots) start(ctx context.Context, wg *sync.WaitGroup) {
	for range s.n {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case call := <-s.calls:
					call()
				}
			}
		})
	}
}

// run waits for a slot, runs call(nil) there, and returns after it. Where ctx ends before
// there is a slot, it is call with the cause.
func (s slots) run(ctx context.Context, call func(noSlot error)) {
	done := make(chan struct{})
	select {
	case s.calls <- func() { defer close(done); call(nil) }:
		<-done
	case <-ctx.Done():
		call(context.Cause(ctx))
	}
}

// assign hands a recorded assignment to the driver of its uid, making one where there is
// none. restart says that it was recorded by an earlier session.
func (l *loop) assign(e entry, header nats.Header, restart bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid := e.Assignment.UID
	if d, ok := l.drivers[uid]; ok && d.assign(e, header) {
		return
	}
	d := &driver{loop: l, uid: uid, entry: e, header: header, wake: make(chan struct{}, 1),
		log: l.log.With("proxy", e.Assignment.Proxy, "uid", uid)}
	if restart {
		d.observed = restored(l.record.lastSeen(uid))
	}
	l.drivers[uid] = d
	if l.ctx != nil {
		l.wg.Go(func() { d.run(l.ctx) })
	}
}

// start lets the drivers run; backend is used from then on. They end with ctx.
func (l *loop) start(ctx context.Context, b backends.Backend) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backend, l.ctx = b, ctx
	for _, s := range []slots{l.ensures, l.deletes, l.reads} {
		s.start(ctx, &l.wg)
	}
	for _, d := range l.drivers {
		l.wg.Go(func() { d.run(ctx) })
	}
}

// wait returns when every driver has ended.
func (l *loop) wait() { l.wg.Wait() }

// woken tells the driver of uid that something may have happened; false if there is none.
func (l *loop) woken(uid string) bool {
	l.mu.Lock()
	d, ok := l.drivers[uid]
	l.mu.Unlock()
	if ok {
		d.woken()
	}
	return ok
}

// republish says the state of uid again.
func (l *loop) republish(uid string) {
	l.mu.Lock()
	d, ok := l.drivers[uid]
	l.mu.Unlock()
	if ok {
		d.republish()
	}
}

// all returns the drivers there are now, by uid.
func (l *loop) all() []*driver {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]*driver, 0, len(l.drivers))
	for _, uid := range slices.Sorted(maps.Keys(l.drivers)) {
		out = append(out, l.drivers[uid])
	}
	return out
}

// forget removes a driver that has nothing left to do, unless it was given something new.
func (l *loop) forget(d *driver, done entry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.entry.Seq != done.Seq {
		return false
	}
	d.over = true
	delete(l.drivers, done.Assignment.UID)
	return true
}
