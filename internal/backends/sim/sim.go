package sim

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"proxyfleet/internal/backends"
)

// Backend implements [backends.Backend] and [backends.Watcher].
type Backend struct {
	cfg     Config
	owner   backends.Owner
	host    backends.HostConfig
	log     *slog.Logger
	world   *World
	network netip.Prefix

	mu     sync.Mutex             // guards what follows
	failed map[failure]int        // scripted errors given so far
	timers map[string]*time.Timer // uid → crash or vanishing to come
	closed bool
}

// failure counts scripted errors by uid and operation.
type failure struct{ uid, op string }

var (
	_ backends.Backend = (*Backend)(nil)
	_ backends.Watcher = (*Backend)(nil)
)

// New opens the backend. It fails only for a configuration that cannot be used.
func New(cfg Config, opts Options) (*Backend, error) {
	network, err := cfg.network()
	if err != nil {
		return nil, err
	}
	if cfg.DiskGiB == 0 {
		cfg.DiskGiB = defaultDiskGiB
	}
	b := &Backend{
		cfg: cfg, owner: opts.Owner, host: opts.Host, log: opts.Log, world: opts.World, network: network,
		failed: map[failure]int{}, timers: map[string]*time.Timer{},
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	switch {
	case b.world != nil:
	case cfg.State == "":
		b.world = NewWorld()
	default:
		if b.world, err = OpenWorld(cfg.State, cfg.Sync); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Kind implements [backends.Backend].
func (b *Backend) Kind() string { return "sim" }

// InPlace implements [backends.Backend].
func (b *Backend) InPlace() []backends.Field {
	return []backends.Field{backends.FieldAuth, backends.FieldAllowFrom, backends.FieldEgress}
}

// Watch implements [backends.Watcher]. It tells of this installation's instances and, since
// a uid is all that an event has, of others' as well.
func (b *Backend) Watch(ctx context.Context) <-chan backends.Event { return b.world.feed.Watch(ctx) }

// Close implements [backends.Backend]. What was scripted to happen later does not happen,
// but for what is worked out from the time of start when an instance is read.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, t := range b.timers {
		t.Stop()
	}
	clear(b.timers)
	return nil
}

// scripted returns the error that the script has for op, until it was given often enough.
func (b *Backend) scripted(ref backends.Ref, op, class string, times int) error {
	if class == "" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := failure{ref.UID, op}
	if times > 0 && b.failed[f] >= times {
		return nil
	}
	b.failed[f]++
	return backends.Errorf(backends.ClassNamed(class), op, "proxy %s: its script says so", ref.Proxy)
}

// schedule sends an event when the script makes something happen to a started instance.
func (b *Backend) schedule(uid string, s script) {
	after, reason := s.CrashAfter, "Crashed"
	if s.VanishAfter > 0 && (after == 0 || s.VanishAfter < after) {
		after, reason = s.VanishAfter, "Vanished"
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unscheduleLocked(uid)
	if after == 0 || b.closed {
		return
	}
	b.timers[uid] = time.AfterFunc(after, func() { b.world.feed.Send(backends.Event{UID: uid, Reason: reason}) })
}

func (b *Backend) unschedule(uid string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unscheduleLocked(uid)
}

func (b *Backend) unscheduleLocked(uid string) {
	if t := b.timers[uid]; t != nil {
		t.Stop()
		delete(b.timers, uid)
	}
}

// sleep waits, or returns the context's end.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unreadable classes an error of the store.
func unreadable(op, name string, err error) error {
	if errors.Is(err, errUnreadable) {
		return backends.Wrap(backends.ErrTransient, op, err, "%s is there and cannot be read; nothing was changed", name)
	}
	return backends.Wrap(backends.ErrTransient, op, err, "cannot reach the objects of this host")
}
