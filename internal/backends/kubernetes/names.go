package kubernetes

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// resolver is a [net.Resolver].
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

const (
	// nameAge is how long an answer counts. Clouds give their load balancers' names a minute.
	nameAge = 30 * time.Second
	// retryAge is how long a failure counts: a name that was just given may take a minute to be known.
	retryAge = 3 * time.Second
	// lookupTime is for all names that a call needs; those beyond it count as not looked up.
	lookupTime    = 5 * time.Second
	lookupsAtOnce = 16
)

// names look load balancers up, for clouds that give them a name and no address.
type names struct {
	resolver resolver

	mu    sync.Mutex // guards known
	known map[string]resolved
}

type resolved struct {
	addresses []netip.Addr
	err       error
	until     time.Time
}

// lookUpNames gives what was found the addresses of its load balancers' names.
func (b *Backend) lookUpNames(ctx context.Context, all ...*found) {
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	var g errgroup.Group
	g.SetLimit(lookupsAtOnce)
	for _, f := range all {
		if f.service == nil || f.record.Expose != exposeLoadBalancer {
			continue
		}
		g.Go(func() error {
			f.names = map[string]resolved{}
			for _, in := range f.service.Status.LoadBalancer.Ingress {
				if in.Hostname != "" {
					f.names[in.Hostname] = b.names.lookUp(ctx, in.Hostname)
				}
			}
			return nil
		})
	}
	_ = g.Wait()
}

// lookUp returns the addresses that a name has now, or had a moment ago.
func (n *names) lookUp(ctx context.Context, name string) resolved {
	n.mu.Lock()
	r, ok := n.known[name]
	n.mu.Unlock()
	if ok && time.Now().Before(r.until) {
		return r
	}
	// The dot keeps the search domains of the agent's Pod out of it.
	r.addresses, r.err = n.resolver.LookupNetIP(ctx, "ip", name+".")
	age := nameAge
	if r.err != nil {
		age = retryAge
	}
	now := time.Now()
	r.until = now.Add(age)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]resolved{}
	}
	for old, o := range n.known { // load balancers that are gone are not asked for again
		if !now.Before(o.until) {
			delete(n.known, old)
		}
	}
	n.known[name] = r
	return r
}

// isNoSuchName reports that name servers know that there is no address of this name.
func isNoSuchName(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}
