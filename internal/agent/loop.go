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
// for one uid follow one another by construction. The slots bound the calls to the backend.
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

// slots bound concurrency.
type slots chan struct{}

// take waits for a slot; false when ctx ended.
func (s slots) take(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s slots) give() { <-s }

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
