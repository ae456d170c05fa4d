package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"proxyfleet/internal/backends/egress"
)

// errRefused says that the rules forbid a destination.
var errRefused = errors.New("this destination is not allowed")

// dialer resolves, asks the rules, and dials exactly what it asked for: a name that resolves
// to something else a moment later changes nothing.
type dialer struct {
	sources []netip.Addr // at most one of a family; none: the system's choice
	rules   egress.Rules
	own     *ownAddresses
	lookup  func(ctx context.Context, host string) ([]netip.Addr, error)
}

// resolve returns the addresses of a host; one that is refused refuses all of them.
func (d dialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := d.lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("cannot resolve the host")
	}
	rules := d.rules
	if rules.Own, err = d.own.get(); err != nil {
		return nil, fmt.Errorf("%w: this host's addresses cannot be read", errRefused)
	}
	var usable []netip.Addr
	for _, a := range addrs {
		if !rules.Addr(a) {
			return nil, errRefused
		}
		if _, ok := sourceFor(d.sources, a); ok || len(d.sources) == 0 {
			usable = append(usable, a)
		}
	}
	if len(usable) == 0 {
		return nil, errors.New("the host has no address of the family that this proxy leaves by")
	}
	return usable, nil
}

// sourceFor is the one of sources that has a's family.
func sourceFor(sources []netip.Addr, a netip.Addr) (netip.Addr, bool) {
	for _, s := range sources {
		if s.Is4() == a.Is4() {
			return s, true
		}
	}
	return netip.Addr{}, false
}

// lookup resolves a name. An address is taken as it stands, since a mapped one would look
// like IPv4 afterwards.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, err
}

type targetKey struct{}

// dialTarget are addresses that the rules allowed.
type dialTarget struct {
	dialer dialer
	addrs  []netip.Addr
	port   uint16
}

func withTarget(ctx context.Context, t dialTarget) context.Context {
	return context.WithValue(ctx, targetKey{}, t)
}

// dialFromContext dials what resolve allowed for the request, whatever name it is given.
func dialFromContext(ctx context.Context, _, _ string) (net.Conn, error) {
	t, ok := ctx.Value(targetKey{}).(dialTarget)
	if !ok {
		return nil, errRefused
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var errs error
	for i, a := range t.addrs {
		nd := net.Dialer{}
		if left := len(t.addrs) - i; left > 1 { // leave time for those that follow
			nd.Timeout = dialTimeout / time.Duration(left)
		}
		if source, ok := sourceFor(t.dialer.sources, a); ok {
			nd.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
		}
		c, err := nd.DialContext(ctx, "tcp", netip.AddrPortFrom(a, t.port).String())
		if err == nil {
			return &idleConn{TCPConn: c.(*net.TCPConn)}, nil
		}
		errs = errors.Join(errs, err)
	}
	return nil, errs
}

// idleConn ends a connection on which nothing moved for tunnelIdle.
type idleConn struct{ *net.TCPConn }

func (c *idleConn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(tunnelIdle))
	return c.TCPConn.Read(b)
}

func (c *idleConn) Write(b []byte) (int, error) {
	now := time.Now()
	_ = c.SetDeadline(now.Add(tunnelIdle)) // for the reader that waits as well
	return c.TCPConn.Write(b)
}

// ownAddresses remembers this host's addresses for a moment.
type ownAddresses struct {
	mu    sync.Mutex // guards what follows
	addrs []netip.Addr
	until time.Time
}

// machine is shared by all rules of a process.
var machine = &ownAddresses{}

func (o *ownAddresses) get() ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if now.Before(o.until) {
		return o.addrs, nil
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	o.addrs = nil
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			o.addrs = append(o.addrs, p.Addr().Unmap().WithZone(""))
		}
	}
	o.until = now.Add(5 * time.Second)
	return o.addrs, nil
}
