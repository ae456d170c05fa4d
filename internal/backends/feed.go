package backends

import (
	"context"
	"sync"
)

// maxQueued is how many events wait for one slow watcher before they become one "list
// again".
const maxQueued = 1024

// Feed hands events to watchers without ever blocking the sender, for backends that
// implement [Watcher]. The zero value is ready. An event is the newest of its uid: several
// that wait are one. A watcher that falls behind gets one event without a uid instead.
type Feed struct {
	mu       sync.Mutex // guards watchers and what is inside them
	watchers map[*watcher]struct{}
}

type watcher struct {
	queue  []Event
	queued map[string]int // uid → index in queue
	wake   chan struct{}  // capacity 1
}

// Send gives e to every watcher.
func (f *Feed) Send(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		w.push(e)
	}
}

// Watch implements [Watcher]. The first event has no uid: what happened before is unknown.
func (f *Feed) Watch(ctx context.Context) <-chan Event {
	w := &watcher{wake: make(chan struct{}, 1)}
	w.push(Event{Reason: "WatchStarted"})
	f.mu.Lock()
	if f.watchers == nil {
		f.watchers = map[*watcher]struct{}{}
	}
	f.watchers[w] = struct{}{}
	f.mu.Unlock()

	out := make(chan Event)
	go func() {
		defer close(out)
		defer func() {
			f.mu.Lock()
			delete(f.watchers, w)
			f.mu.Unlock()
		}()
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
			f.mu.Lock()
			batch := w.queue
			w.queue, w.queued = nil, nil
			f.mu.Unlock()
			for _, e := range batch {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return out
}

// push is called with the feed's lock held, or before the watcher is known to it.
func (w *watcher) push(e Event) {
	if i, ok := w.queued[e.UID]; ok {
		w.queue[i] = e
		return
	}
	if len(w.queue) >= maxQueued {
		w.queue, w.queued = nil, nil
		e = Event{Reason: "EventsLost"}
	}
	if w.queued == nil {
		w.queued = map[string]int{}
	}
	w.queued[e.UID] = len(w.queue)
	w.queue = append(w.queue, e)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
