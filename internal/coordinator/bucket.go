package coordinator

import (
	"maps"
	"slices"
	"sync"
	"time"

	"proxyfleet/internal/bus"
)

// bucket is what one bucket should hold.
type bucket struct {
	name  string
	pause time.Duration // least time between two writes

	mu      sync.Mutex // guards the fields that follow
	keys    map[string][]byte
	watched map[*changes]bool
	dirty   map[string]bool
	since   time.Time // the first of dirty became so
	written time.Time // the last time
}

// set sets a key, or removes it when value is nil.
func (b *bucket) set(key string, value []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if value == nil {
		delete(b.keys, key)
	} else {
		b.keys[key] = value
	}
	b.mark(key)
	for c := range b.watched {
		c.add(key)
	}
}

// mark makes a key dirty. The caller holds mu.
func (b *bucket) mark(key string) {
	if len(b.dirty) == 0 {
		b.since = time.Now()
	}
	b.dirty[key] = true
}

// due is when to write; zero: there is nothing to write.
func (b *bucket) due() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dueLocked()
}

func (b *bucket) dueLocked() time.Time {
	if len(b.dirty) == 0 {
		return time.Time{}
	}
	due := b.since.Add(settle)
	if after := b.written.Add(b.pause); after.After(due) {
		return after
	}
	return due
}

// take returns the writes of the dirty keys, which are dirty no more; none before they are
// due.
func (b *bucket) take(now time.Time) []bus.KVWrite {
	b.mu.Lock()
	defer b.mu.Unlock()
	if due := b.dueLocked(); due.IsZero() || now.Before(due) {
		return nil
	}
	writes := make([]bus.KVWrite, 0, len(b.dirty))
	for key := range b.dirty {
		writes = append(writes, bus.KVWrite{Key: key, Value: b.keys[key]})
	}
	clear(b.dirty)
	b.written = now
	return writes
}

// back makes keys dirty again.
func (b *bucket) back(writes []bus.KVWrite) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range writes {
		b.mark(w.Key)
	}
}

// all makes every key dirty.
func (b *bucket) all() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.keys {
		b.mark(key)
	}
}

func (b *bucket) compare(stored map[string]string) (differ int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, want := range b.keys {
		if have, ok := stored[key]; !ok || have != string(want) {
			b.mark(key)
			differ++
		}
	}
	for key := range stored {
		if _, ok := b.keys[key]; !ok {
			b.mark(key)
			differ++
		}
	}
	return differ
}

// changes are the keys of a bucket that changed and that a watcher has not taken yet.
type changes struct {
	news chan struct{} // capacity 1: there are some

	mu   sync.Mutex // guards the field that follows
	keys map[string]bool
}

// watch begins with all keys. The caller ends it.
func (b *bucket) watch() (c *changes, end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c = &changes{news: make(chan struct{}, 1), keys: map[string]bool{}}
	for key := range b.keys {
		c.keys[key] = true
	}
	if b.watched == nil {
		b.watched = map[*changes]bool{}
	}
	b.watched[c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watched, c)
	}
}

func (c *changes) add(key string) {
	c.mu.Lock()
	c.keys[key] = true
	c.mu.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// take returns the changed keys in order.
func (c *changes) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.Sorted(maps.Keys(c.keys))
	clear(c.keys)
	return keys
}
