package libvirt

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// Budgets of single calls. They are far above what a working daemon needs: beyond them it
// is taken as hanging.
const (
	dialBudget  = 10 * time.Second
	readBudget  = 20 * time.Second
	writeBudget = 90 * time.Second // starting a guest includes its firmware and network
	// agentBudget bounds what waits for something inside a guest; libvirt itself gives up
	// on a silent guest agent after 5 s.
	agentBudget = 8 * time.Second
	// farewell is how long the daemon may take over the end of a session.
	farewell = time.Second
	// grace is how much longer than its context a call that changes something may take, so
	// that its outcome is known.
	grace = time.Second
)

// session is one connection to the daemon, for one operation. Calls on it follow one
// another.
type session struct {
	l    *golibvirt.Libvirt
	conn *watchedConn
	ctx  context.Context
}

// open connects. The session ends with close, and every call on it soon after ctx does.
func (b *Backend) open(ctx context.Context) (*session, error) { return open(ctx, b.reach.dial) }

// openFresh is open on a connection that has nothing in common with others.
func (b *Backend) openFresh(ctx context.Context) (*session, error) { return open(ctx, b.reach.fresh) }

func open(ctx context.Context, dial func(context.Context) (net.Conn, error)) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, backends.Wrap(backends.ErrTransient, "connect", err, "nothing was done")
	}
	dialing, cancel := context.WithTimeout(ctx, 2*dialBudget) // it may wait for another's
	raw, err := dial(dialing)
	cancel()
	if err != nil && ctx.Err() == nil && backends.Ended(err) { // our patience, not the caller's
		err = backends.Wrap(backends.ErrTransient, "connect", &coded{backends.CheckTimeout, errors.New("no answer")},
			"libvirtd was not reached in time; guests that run go on running")
	}
	if err != nil {
		return nil, err
	}
	conn := &watchedConn{Conn: raw, lost: make(chan struct{})}
	s := &session{l: golibvirt.NewWithDialer(already{&streamOrder{Conn: conn}}), conn: conn, ctx: ctx}
	err = s.do("connect", dialBudget, 0, func(l *golibvirt.Libvirt) error {
		return l.ConnectToURI(driver)
	})
	if err != nil {
		s.cut()
		return nil, err
	}
	return s, nil
}

// with runs f on a connection of its own.
func (b *Backend) with(ctx context.Context, f func(*session) error) error {
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	return f(s)
}

// close takes leave of the daemon, which logs an error when a client just hangs up; that is
// what it gets when it does not answer soon, or when the context has ended.
func (s *session) close() {
	defer s.cut()
	select {
	case <-s.conn.lost:
		return
	default:
	}
	if s.ctx.Err() != nil {
		return
	}
	defer time.AfterFunc(farewell, s.cut).Stop()
	defer context.AfterFunc(s.ctx, s.cut)()
	_ = s.l.Disconnect()
}

// cut closes the connection, which ends a call that is under way.
func (s *session) cut() { _ = s.conn.Close() }

// do makes one call within a budget, and at most after longer than the context.
func (s *session) do(op string, budget, after time.Duration, f func(*golibvirt.Libvirt) error) error {
	if err := s.ctx.Err(); err != nil {
		return backends.Wrap(backends.ErrTransient, op, err, "not asked of libvirt any more")
	}
	var overdue atomic.Bool
	timer := time.AfterFunc(budget, func() {
		overdue.Store(true)
		s.cut()
	})
	defer timer.Stop()
	stop := context.AfterFunc(s.ctx, func() {
		if after > 0 {
			select {
			case <-time.After(after):
			case <-s.conn.lost:
			}
		}
		s.cut()
	})
	err := f(s.l)
	stop()
	switch {
	case err == nil:
		return nil
	case isAnswer(err):
		return classify(op, err)
	case s.ctx.Err() != nil:
		return backends.Wrap(backends.ErrTransient, op, s.ctx.Err(), "stopped while libvirt was working on it")
	case overdue.Load():
		return backends.Errorf(backends.ErrTransient, op, "libvirt did not answer within %s", budget)
	}
	return backends.Wrap(backends.ErrTransient, op, err, "the connection to libvirtd broke")
}

// read makes a call that changes nothing.
func read[T any](s *session, op string, f func(*golibvirt.Libvirt) (T, error)) (v T, err error) {
	return within(s, op, readBudget, f)
}

// within is read with a budget of its own.
func within[T any](s *session, op string, budget time.Duration, f func(*golibvirt.Libvirt) (T, error)) (v T, err error) {
	err = s.do(op, budget, 0, func(l *golibvirt.Libvirt) (err error) {
		v, err = f(l)
		return err
	})
	return v, err
}

// write makes a call that changes something, after its labelled step.
func (s *session) write(step, op string, f func(*golibvirt.Libvirt) error) error {
	if err := backends.Step(s.ctx, step); err != nil {
		return err
	}
	return s.do(op, writeBudget, grace, f)
}

// watchedConn is a connection that tells when it is lost, to whoever does not read from it.
type watchedConn struct {
	net.Conn
	once sync.Once
	lost chan struct{} // closed with the connection
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(func() { close(c.lost) })
	}
	return n, err
}

// already is a dialer of go-libvirt's for a connection that exists.
type already struct{ conn net.Conn }

func (a already) Dial() (net.Conn, error) { return a.conn, nil }
