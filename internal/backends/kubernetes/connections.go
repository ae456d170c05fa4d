package kubernetes

import (
	"context"
	"net"
	"sync"
	"time"
)

// connections are those of one agent, so that it can end them: a transport keeps one that has
// a stream which is about to end. The zero value is ready.
type connections struct {
	mu    sync.Mutex // guards what follows
	open  map[*connection]struct{}
	ended bool // the transport may go on dialling for requests that are over
}

type connection struct {
	net.Conn
	of *connections
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	raw, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	if c.open == nil {
		c.open = map[*connection]struct{}{}
	}
	conn := &connection{raw, c}
	c.open[conn] = struct{}{}
	return conn, nil
}

// Close implements [net.Conn].
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// close ends all that are open, and those that are still being dialled.
func (c *connections) close() {
	c.mu.Lock()
	open := c.open
	c.open, c.ended = nil, true
	c.mu.Unlock()
	for conn := range open {
		_ = conn.Conn.Close()
	}
}
