package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

const (
	// settle is how long a change waits for others before it is shown: a proxy often goes
	// through two or three phases within it, of which the last one is worth a write. People
	// do not see the difference.
	settle = 20 * time.Millisecond
	// hostPause is the least time between two writes of hosts, whose records change with
	// every proxy that is bound.
	hostPause = 250 * time.Millisecond
)

// inventory brings the buckets in line with what the model says they hold, a moment after
// it changed. Only the newest value of a key is written. It alone calls
// Leader.CommitBucket.
type inventory struct {
	leader  *bus.Leader
	js      jetstream.JetStream
	audit   time.Duration
	log     *slog.Logger
	metrics *Metrics
	wakeUp  chan struct{}
	doubt   chan struct{}         // capacity 1: what is stored may not be what was written
	ready   chan struct{}         // closed once everything stored was read
	buckets [core.Buckets]*bucket // by core.Bucket
}

func newInventory(names bus.Names, leader *bus.Leader, js jetstream.JetStream, audit time.Duration, log *slog.Logger, metrics *Metrics) *inventory {
	inv := &inventory{leader: leader, js: js, audit: audit, log: log, metrics: metrics,
		wakeUp: make(chan struct{}, 1), doubt: make(chan struct{}, 1), ready: make(chan struct{})}
	for b, name := range map[core.Bucket]string{core.Proxies: names.Proxies(), core.Hosts: names.Hosts(), core.Endpoints: names.Endpoints(), core.Pools: names.Pools()} {
		inv.buckets[b] = &bucket{name: name, keys: map[string][]byte{}, dirty: map[string]bool{}}
	}
	inv.buckets[core.Hosts].pause = hostPause
	return inv
}

func (inv *inventory) put(c core.Put) { inv.buckets[c.Bucket].set(c.Key, c.Value) }

func (inv *inventory) delete(c core.Delete) { inv.buckets[c.Bucket].set(c.Key, nil) }

// get returns the value of a key as it is or will be written.
func (inv *inventory) get(from core.Bucket, key string) ([]byte, bool) {
	b := inv.buckets[from]
	b.mu.Lock()
	defer b.mu.Unlock()
	v, ok := b.keys[key]
	return v, ok
}

// sorted returns all keys in order.
func (inv *inventory) sorted(from core.Bucket) []string {
	b := inv.buckets[from]
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := make([]string, 0, len(b.keys))
	for k := range b.keys {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// caughtUp says that the model has read everything: what it did not name is foreign.
func (inv *inventory) caughtUp() { close(inv.ready) }

func (inv *inventory) wake() {
	select {
	case inv.wakeUp <- struct{}{}:
	default:
	}
}

// recheck has the buckets compared with what they should hold.
func (inv *inventory) recheck() {
	select {
	case inv.doubt <- struct{}{}:
	default:
	}
}

func (inv *inventory) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-inv.ready:
	}
	inv.compareAll(ctx)
	audit := time.NewTicker(inv.audit)
	defer audit.Stop()
	look := time.NewTicker(min(inv.audit, lookEvery))
	defer look.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	for {
		next, err := inv.flush(ctx)
		if err != nil {
			return err
		}
		due.Stop()
		if !next.IsZero() {
			due.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due.C:
		case <-inv.wakeUp:
		case <-inv.doubt:
			inv.compareAll(ctx)
		case <-audit.C:
			inv.compareAll(ctx)
		case <-look.C:
			if err := inv.regainMissing(ctx); err != nil {
				return err
			}
		}
	}
}

// flush writes the buckets that are due and returns when the next one is; zero: none.
func (inv *inventory) flush(ctx context.Context) (next time.Time, err error) {
	for _, b := range inv.buckets {
		if writes := b.take(time.Now()); len(writes) > 0 {
			if err := inv.write(ctx, b, writes); err != nil {
				return time.Time{}, err
			}
		}
		if due := b.due(); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next, nil
}

// lookEvery is how often missing buckets are looked for. Where nothing changes nothing is
// written, so that nothing else would tell.
const lookEvery = 15 * time.Second

// regainMissing makes buckets anew that somebody deleted.
func (inv *inventory) regainMissing(ctx context.Context) error {
	for _, b := range inv.buckets {
		if _, err := inv.js.KeyValue(ctx, b.name); !errors.Is(err, jetstream.ErrBucketNotFound) {
			continue // it is there, or the next look tells
		}
		if err := inv.took(ctx, b, nil, inv.leader.RegainBucket(ctx, b.name)); err != nil {
			return err
		}
	}
	return nil
}

func (inv *inventory) write(ctx context.Context, b *bucket, writes []bus.KVWrite) error {
	return inv.took(ctx, b, writes, inv.leader.CommitBucket(ctx, b.name, writes))
}

// took is what became of writes. It returns an error when the lead is lost or ctx ended;
// after others the keys are dirty again.
func (inv *inventory) took(ctx context.Context, b *bucket, writes []bus.KVWrite, err error) error {
	switch {
	case err == nil:
		inv.metrics.written.WithLabelValues(b.name).Add(float64(len(writes)))
	case errors.Is(err, bus.ErrBucketRecreated):
		inv.log.Warn("a bucket was missing; everything is written to it again", "bucket", b.name)
		b.all()
	case errors.Is(err, bus.ErrFenced), ctx.Err() != nil:
		return err
	default:
		b.back(writes)
		inv.log.Warn("the inventory could not be written; it is tried again", "bucket", b.name, "keys", len(writes), "err", err)
		sleep(ctx, time.Second)
	}
	return nil
}

// compareAll makes dirty what a bucket holds otherwise than it should: what an earlier
// leader left, what somebody else wrote or removed.
func (inv *inventory) compareAll(ctx context.Context) {
	for _, b := range inv.buckets {
		stored, err := inv.read(ctx, b.name)
		if err != nil {
			if ctx.Err() == nil {
				inv.log.Warn("a bucket cannot be read; all of it is written again", "bucket", b.name, "err", err)
			}
			b.all()
			continue
		}
		if n := b.compare(stored); n > 0 {
			inv.log.Info("a bucket is brought up to date", "bucket", b.name, "keys", n)
		}
	}
}

// read returns a bucket's keys but the fence. A missing bucket is an error, and so is one of
// which nothing has come for a while: what is asked while a leader is elected is never answered,
// and nothing is written meanwhile.
func (inv *inventory) read(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(readSilence, cancel)
	defer silence.Stop()
	kv, err := inv.js.KeyValue(ctx, name)
	if err != nil {
		return nil, err
	}
	w, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, err
	}
	defer w.Stop() //nolint:errcheck // it has been read
	stored := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("read bucket %s: nothing came for %v", name, readSilence)
		case e, ok := <-w.Updates():
			silence.Reset(readSilence)
			if !ok {
				return nil, fmt.Errorf("read bucket %s: the reader was closed", name)
			}
			if e == nil {
				return stored, nil
			}
			if e.Key() != bus.FenceKey {
				stored[e.Key()] = string(e.Value())
			}
		}
	}
}

const readSilence = 5 * time.Second
