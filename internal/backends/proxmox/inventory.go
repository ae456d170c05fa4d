package proxmox

import (
	"context"
	"sync"
	"time"

	"proxyfleet/internal/backends/proxmox/pve"
)

// snapshot is the cluster at one moment.
type snapshot struct {
	at time.Time // when the request was sent
	pve.Resources
	vms   map[int]pve.VM
	nodes map[string]pve.Node
}

func newSnapshot(at time.Time, r pve.Resources) *snapshot {
	s := &snapshot{at: at, Resources: r, vms: map[int]pve.VM{}, nodes: map[string]pve.Node{}}
	for _, v := range r.VMs {
		s.vms[v.ID] = v
	}
	for _, n := range r.Nodes {
		s.nodes[n.Name] = n
	}
	return s
}

// offline reports a node that the cluster says is away. One that the token may not see is
// not known to be.
func (s *snapshot) offline(node string) bool {
	n, known := s.nodes[node]
	return known && !n.Online
}

// inventory reads /cluster/resources for everyone: callers that need it at about the same
// time share one request, and no two run at once.
type inventory struct {
	read func(context.Context) (pve.Resources, error)

	mu     sync.Mutex // guards the fields that follow
	last   *snapshot
	flight *flight
}

// flight is a request that callers wait for. It is cancelled when the last of them leaves.
type flight struct {
	at      time.Time
	waiting int
	cancel  context.CancelFunc
	done    chan struct{} // closed when snap and err are set
	snap    *snapshot
	err     error
}

// fresh returns the cluster as it was at some moment after the call.
func (i *inventory) fresh(ctx context.Context) (*snapshot, error) { return i.since(ctx, time.Now()) }

// recent returns the cluster as it was no longer than age ago.
func (i *inventory) recent(ctx context.Context, age time.Duration) (*snapshot, error) {
	return i.since(ctx, time.Now().Add(-age))
}

func (i *inventory) since(ctx context.Context, when time.Time) (*snapshot, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		i.mu.Lock()
		if i.last != nil && !i.last.at.Before(when) {
			defer i.mu.Unlock()
			return i.last, nil
		}
		f := i.flight
		if f == nil {
			f = i.startLocked(ctx)
		}
		f.waiting++
		i.mu.Unlock()
		err := i.wait(ctx, f)
		if err != nil {
			return nil, err
		}
		if f.at.Before(when) {
			continue // it was under way already: its answer may be older than the call
		}
		return f.snap, f.err
	}
}

// wait returns when f has ended, or ctx.
func (i *inventory) wait(ctx context.Context, f *flight) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if f.waiting--; f.waiting == 0 {
		f.cancel()
		if i.flight == f {
			i.flight = nil
		}
	}
	return context.Cause(ctx)
}

func (i *inventory) startLocked(ctx context.Context) *flight {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{at: time.Now(), cancel: cancel, done: make(chan struct{})}
	i.flight = f
	go func() {
		defer cancel()
		r, err := i.read(ctx)
		i.mu.Lock()
		defer i.mu.Unlock()
		if err != nil {
			f.err = err
		} else {
			f.snap = newSnapshot(f.at, r)
			if i.last == nil || i.last.at.Before(f.at) {
				i.last = f.snap
			}
		}
		if i.flight == f {
			i.flight = nil
		}
		close(f.done)
	}()
	return f
}
