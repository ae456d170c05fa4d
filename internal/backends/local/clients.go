package local

import (
	"net"
	"sync"
)

// clientListener accepts as many connections at once as it may; the kernel keeps further
// clients waiting. Its connections are TCP connections, so that tunnels can be half-closed.
type clientListener struct {
	net.Listener

	mu    sync.Mutex // guards what follows
	most  int        // 0: no limit
	open  int
	freed *sync.Cond // on mu; a connection ended, or the limit changed
}

// limit changes how many there may be. What is open stays.
func (l *clientListener) limit(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed == nil {
		l.freed = sync.NewCond(&l.mu)
	}
	l.most = most
	l.freed.Broadcast()
}

// Accept implements [net.Listener].
func (l *clientListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	for l.most > 0 && l.open >= l.most {
		l.freed.Wait()
	}
	l.open++
	l.mu.Unlock()
	c, err := l.Listener.Accept()
	if err != nil {
		l.done()
		return nil, err
	}
	return &clientConn{TCPConn: c.(*net.TCPConn), done: sync.OnceFunc(l.done)}, nil
}

// Close implements [net.Listener]. It wakes an Accept that waits for its turn.
func (l *clientListener) Close() error {
	err := l.Listener.Close()
	l.limit(0)
	return err
}

func (l *clientListener) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.freed.Signal()
}

type clientConn struct {
	*net.TCPConn
	done func()
}

func (c *clientConn) Close() error {
	defer c.done()
	return c.TCPConn.Close()
}

// limit puts the limits of the configuration in force.
func (c *child) limit() {
	c.clients.limit(c.conf.Limits.Connections)
	if err := c.conf.Limits.apply(); err != nil {
		c.log.Warn("a limit is not as configured", "error", err)
	}
}
