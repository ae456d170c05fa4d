package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// bucketBatch keeps one write of a bucket short.
const bucketBatch = 500

// inventory brings the buckets in line with what the model says they hold. Only the newest
// value of a key is written. It alone calls Leader.CommitBucket.
type inventory struct {
	leader  *bus.Leader
	js      jetstream.JetStream
	audit   time.Duration
	log     *slog.Logger
	metrics *Metrics
	wakeUp  chan struct{}
	ready   chan struct{} // closed once everything stored was read
	buckets [3]*bucket    // by core.Bucket
}

// bucket is what one bucket should hold.
type bucket struct {
	name string

	mu    sync.Mutex // guards the fields that follow
	keys  map[string][]byte
	dirty map[string]bool
}

func newInventory(names bus.Names, leader *bus.Leader, js jetstream.JetStream, audit time.Duration, log *slog.Logger, metrics *Metrics) *inventory {
	inv := &inventory{leader: leader, js: js, audit: audit, log: log, metrics: metrics,
		wakeUp: make(chan struct{}, 1), ready: make(chan struct{})}
	for b, name := range map[core.Bucket]string{core.Proxies: names.Proxies(), core.Hosts: names.Hosts(), core.Endpoints: names.Endpoints()} {
		inv.buckets[b] = &bucket{name: name, keys: map[string][]byte{}, dirty: map[string]bool{}}
	}
	return inv
}

func (inv *inventory) put(c core.Put) {
	b := inv.buckets[c.Bucket]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys[c.Key] = c.Value
	b.dirty[c.Key] = true
}

func (inv *inventory) delete(c core.Delete) {
	b := inv.buckets[c.Bucket]
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.keys, c.Key)
	b.dirty[c.Key] = true
}

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

func (inv *inventory) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-inv.ready:
	}
	inv.compareAll(ctx)
	audit := time.NewTicker(inv.audit)
	defer audit.Stop()
	for {
		if err := inv.flush(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-inv.wakeUp:
		case <-audit.C:
			inv.compareAll(ctx)
		}
	}
}

// flush writes every bucket until none is dirty.
func (inv *inventory) flush(ctx context.Context) error {
	for _, b := range inv.buckets {
		for {
			writes := b.take()
			if len(writes) == 0 {
				break
			}
			err := inv.leader.CommitBucket(ctx, b.name, writes)
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
		}
	}
	return nil
}

// take returns writes for some dirty keys, which are dirty no more.
func (b *bucket) take() []bus.KVWrite {
	b.mu.Lock()
	defer b.mu.Unlock()
	var writes []bus.KVWrite
	for key := range b.dirty {
		writes = append(writes, bus.KVWrite{Key: key, Value: b.keys[key]})
		delete(b.dirty, key)
		if len(writes) == bucketBatch {
			break
		}
	}
	return writes
}

// back makes keys dirty again.
func (b *bucket) back(writes []bus.KVWrite) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range writes {
		b.dirty[w.Key] = true
	}
}

// all makes every key dirty.
func (b *bucket) all() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.keys {
		b.dirty[key] = true
	}
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

func (b *bucket) compare(stored map[string]string) (differ int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, want := range b.keys {
		if have, ok := stored[key]; !ok || have != string(want) {
			b.dirty[key] = true
			differ++
		}
	}
	for key := range stored {
		if _, ok := b.keys[key]; !ok {
			b.dirty[key] = true
			differ++
		}
	}
	return differ
}

// read returns a bucket's keys but the fence. A missing bucket is an error.
func (inv *inventory) read(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
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
			return nil, fmt.Errorf("read bucket %s: %w", name, ctx.Err())
		case e, ok := <-w.Updates():
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

const readTimeout = 30 * time.Second
