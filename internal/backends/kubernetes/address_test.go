package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// zone answers lookups from memory, and counts them.
type zone struct {
	mu    sync.Mutex // guards what follows
	names map[string][]string
	err   error
	asked map[string]int
}

func (z *zone) LookupNetIP(_ context.Context, _, host string) (out []netip.Addr, _ error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.asked == nil {
		z.asked = map[string]int{}
	}
	z.asked[host]++
	if z.err != nil {
		return nil, z.err
	}
	texts, ok := z.names[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out, nil
}

func (z *zone) set(name string, addresses ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.names[name] = addresses
}

// balancedBy is a proxy whose load balancer reports itself so.
func balancedBy(ingress ...corev1.LoadBalancerIngress) found {
	return found{pod: &corev1.Pod{}, record: record{Expose: exposeLoadBalancer},
		service: &corev1.Service{Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}}}}
}

func TestALoadBalancerIsReachedByAddressOrByName(t *testing.T) {
	z := &zone{names: map[string][]string{"lb.example.org.": {"198.51.100.9", "198.51.100.8"}, "six.example.org.": {"2001:db8::1"},
		"bad.example.org.": {"127.0.0.1", "169.254.169.254", "::1"}}}
	failing := &zone{err: &net.DNSError{Err: "server misbehaving", Name: "lb.example.org.", IsTemporary: true}}
	for name, c := range map[string]struct {
		ingress []corev1.LoadBalancerIngress
		zone    *zone
		ipv6    bool
		want    string
		reason  string
		unread  bool
	}{
		"an address":                       {ingress: []corev1.LoadBalancerIngress{{IP: "198.51.100.7"}}, want: "[198.51.100.7]"},
		"a name, in an order that stays":   {ingress: []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}}, want: "[198.51.100.8 198.51.100.9]"},
		"both, once each":                  {ingress: []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}, {IP: "198.51.100.9"}}, want: "[198.51.100.8 198.51.100.9]"},
		"a name with IPv6":                 {ingress: []corev1.LoadBalancerIngress{{Hostname: "six.example.org"}}, ipv6: true, want: "[2001:db8::1]"},
		"a name with IPv6, not configured": {ingress: []corev1.LoadBalancerIngress{{Hostname: "six.example.org"}}, want: "[]", reason: reasonNoAddress},
		"a name of this machine":           {ingress: []corev1.LoadBalancerIngress{{Hostname: "bad.example.org"}}, ipv6: true, want: "[]", reason: reasonNoAddress},
		"nothing yet":                      {want: "[]", reason: reasonNoAddress},
		"a name that nobody knows yet":     {ingress: []corev1.LoadBalancerIngress{{Hostname: "new.example.org"}}, want: "[]", reason: reasonUnresolved},
		"a name that cannot be looked up":  {ingress: []corev1.LoadBalancerIngress{{Hostname: "lb.example.org"}}, zone: failing, want: "[]", reason: reasonUnresolved, unread: true},
	} {
		if c.zone == nil {
			c.zone = z
		}
		b := &Backend{conf: Config{IPv6: c.ipv6}, names: names{resolver: c.zone}}
		f := balancedBy(c.ingress...)
		b.lookUpNames(t.Context(), &f)
		r := b.reach(f)
		if got := fmt.Sprint(r.addresses); got != c.want || r.reason != c.reason || r.unread != c.unread || (r.reason == "") != (r.message == "") {
			t.Errorf("%s: got %s, %q (%s), unread %v; want %s, %q, unread %v", name, got, r.reason, r.message, r.unread, c.want, c.reason, c.unread)
		}
		if c.reason == reasonUnresolved && !strings.Contains(r.message, c.ingress[0].Hostname) {
			t.Errorf("%s: the message does not name it: %s", name, r.message)
		}
	}
}

func TestNamesAreLookedUpAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{names: map[string][]string{"lb.": {"198.51.100.1"}}}
		n := names{resolver: z}
		look := func(name string) string {
			r := n.lookUp(t.Context(), name)
			if r.err != nil {
				return fmt.Sprint(isNoSuchName(r.err))
			}
			return fmt.Sprint(r.addresses)
		}
		first := []string{look("lb"), look("new")}
		z.set("lb.", "198.51.100.2")
		z.set("new.", "198.51.100.3")
		first = append(first, look("lb"), look("new"))
		time.Sleep(retryAge)
		first = append(first, look("lb"), look("new"))
		time.Sleep(nameAge)
		first = append(first, look("lb"))
		want := []string{"[198.51.100.1]", "true", "[198.51.100.1]", "true", "[198.51.100.1]", "[198.51.100.3]", "[198.51.100.2]"}
		if !slices.Equal(first, want) {
			t.Errorf("got  %v\nwant %v", first, want)
		}
		if len(n.known) != 1 {
			t.Errorf("what nobody asks for any more is kept: %v", n.known)
		}
	})
}

func TestAListingDoesNotWaitForOneNameAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Backend{names: names{resolver: slow{}}}
		var all []*found
		for i := range 3 * lookupsAtOnce {
			f := balancedBy(corev1.LoadBalancerIngress{Hostname: fmt.Sprintf("lb-%d.example.org", i)})
			all = append(all, &f)
		}
		began := time.Now()
		b.lookUpNames(t.Context(), all...)
		if took := time.Since(began); took != lookupTime {
			t.Errorf("it took %v, want %v", took, lookupTime)
		}
		for _, f := range all {
			if r := b.reach(*f); r.reason != reasonUnresolved || !r.unread {
				t.Fatalf("got %+v, want an address that was not read", r)
			}
		}
	})
}

// slow never answers.
type slow struct{}

func (slow) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, errors.New("i/o timeout")
}
