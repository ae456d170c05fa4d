package bus

import (
	"context"

	"github.com/nats-io/nats.go"
)

// PutState publishes a state, newest wins per subject, and repeats it until it is stored.
// It never blocks.
func (l *HostLink) PutState(s State, header nats.Header) {
	l.put.put(&nats.Msg{Subject: l.names.StateProxy(l.host, s.Proxy, s.UID), Data: Encode(s), Header: header})
}

// PutHost is PutState for the host document.
func (l *HostLink) PutHost(h Host) {
	l.put.put(&nats.Msg{Subject: l.names.StateHost(l.host), Data: Encode(h)})
}

// Beat publishes a beat; it is lost while disconnected.
func (l *HostLink) Beat(b Beat) error {
	if !l.nc.IsConnected() { // or it would be kept, and be old when it is sent
		return nats.ErrDisconnected
	}
	return l.nc.Publish(l.names.Beat(l.host), Encode(b))
}

// Flush waits until everything put was stored, or ctx ends.
func (l *HostLink) Flush(ctx context.Context) error { return l.put.flush(ctx) }

// FlushState waits until the newest state put of a uid was stored, or ctx ends.
func (l *HostLink) FlushState(ctx context.Context, proxy, uid string) error {
	return l.put.flushSubject(ctx, l.names.StateProxy(l.host, proxy, uid))
}

// Close stops the publisher and waits for its goroutines; what was not stored is dropped.
func (l *HostLink) Close() { l.put.close() }

// speak notes whether what is put may be published, by a look after so many reconnects.
func (l *HostLink) speak(may bool, reconnects uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.speaks, l.lookAt = may, reconnects
	close(l.looked)
	l.looked = make(chan struct{})
}

// held is nil where what is put may be published now; else it is closed at the next look.
// While the connection is away another host may be admitted, so a reconnect asks for one.
func (l *HostLink) held() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.admit == nil || l.speaks && l.nc.IsConnected() && l.nc.Stats().Reconnects == l.lookAt {
		return nil
	}
	return l.looked
}
