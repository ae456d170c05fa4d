package sim

import (
	"context"
	"sync"

	"proxyfleet/internal/backends"
)

// trouble is what is wrong with a whole host. The zero value is none.
type trouble struct {
	mu      sync.Mutex // guards what follows
	class   error
	stalled chan struct{} // closed when it goes on; nil: not stalled
}

// Fault makes every call to the host fail with an error class, as expired credentials
// (ErrHostFault) or a network that is down (ErrTransient) do; nil mends it.
func (w *World) Fault(class error) {
	w.trouble.mu.Lock()
	defer w.trouble.mu.Unlock()
	w.trouble.class = class
}

// Stall makes every call to the host hang, until resume is called or its context ends.
func (w *World) Stall() (resume func()) {
	w.trouble.mu.Lock()
	defer w.trouble.mu.Unlock()
	stalled := make(chan struct{})
	w.trouble.stalled = stalled
	return sync.OnceFunc(func() {
		w.trouble.mu.Lock()
		defer w.trouble.mu.Unlock()
		close(stalled)
		if w.trouble.stalled == stalled {
			w.trouble.stalled = nil
		}
	})
}

// enter is how every call to the host begins.
func (w *World) enter(ctx context.Context, op string) error {
	w.trouble.mu.Lock()
	class, stalled := w.trouble.class, w.trouble.stalled
	w.trouble.mu.Unlock()
	if stalled != nil {
		select {
		case <-stalled:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if class != nil {
		return backends.Errorf(class, op, "the simulated host is in trouble; nothing was changed")
	}
	return nil
}
