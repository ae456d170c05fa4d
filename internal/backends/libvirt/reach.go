package libvirt

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"
	"time"

	"proxyfleet/internal/backends"
)

// keepaliveEvery is how often a remote end is asked for a sign of life. One that gives none
// until the next is taken as lost.
const keepaliveEvery = 15 * time.Second

// reach makes connections to one daemon, each for one operation. Each is independent: that
// one is closed, or that its operation takes too long, ends no other.
type reach interface {
	// dial connects, until ctx ends.
	dial(ctx context.Context) (net.Conn, error)
	// fresh is dial with nothing kept from before: it meets credentials as they are now.
	fresh(ctx context.Context) (net.Conn, error)
	// close ends what dial keeps, if anything, and the connections with it.
	close()
}

// newReach is for a configuration that was validated.
func newReach(c Config) (reach, error) {
	e, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	switch e.transport {
	case "ssh":
		return newSSHReach(e, c.SSH), nil
	case "tls":
		return tlsReach{e, c.TLS}, nil
	}
	return unixReach{e}, nil
}

// coded is the cause of an error, with the code that a check gives it.
type coded struct {
	code  string
	cause error
}

func (c *coded) Error() string { return c.cause.Error() }
func (c *coded) Unwrap() error { return c.cause }

// unreachable is an error of dialing. Of all codes only that nobody answers may pass by
// itself; the others are the host's fault.
func unreachable(ctx context.Context, code string, cause error, format string, args ...any) error {
	if ctx.Err() != nil {
		return backends.Wrap(backends.ErrTransient, "connect", ctx.Err(), "libvirtd did not answer")
	}
	class := backends.ErrHostFault
	if code == backends.CheckUnreachable {
		class = backends.ErrTransient
	}
	return backends.Wrap(class, "connect", &coded{code, cause}, format, args...)
}

// noSocket reports an error of a socket that nobody listens on, so that the next may be
// tried.
func noSocket(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// unixReach is the daemon on this host.
type unixReach struct{ at endpoint }

func (r unixReach) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	var first error
	for _, path := range r.at.sockets {
		conn, err := dialer.DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		if first == nil || noSocket(first) && !noSocket(err) {
			first = err
		}
	}
	if errors.Is(first, fs.ErrPermission) {
		return nil, unreachable(ctx, backends.CheckForbidden, first,
			"the agent may not use libvirtd's socket; run it as root or as a member of the group libvirt")
	}
	return nil, unreachable(ctx, backends.CheckUnreachable, first, "libvirtd cannot be reached; guests that run go on running")
}

func (r unixReach) fresh(ctx context.Context) (net.Conn, error) { return r.dial(ctx) }
func (r unixReach) close()                                      {}
