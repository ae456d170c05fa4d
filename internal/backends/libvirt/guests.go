package libvirt

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"proxyfleet/internal/backends"
)

// silentAfter is how long a guest may run without an address before that is told, with
// what it last wrote to its console. One that is emulated on a busy host was seen to need
// over two minutes.
const silentAfter = 4 * time.Minute

// guests remembers what running guests were last seen with: to tell when two of them have
// one address, and when one reports none for long.
type guests struct {
	mu    sync.Mutex // guards known and what is in it
	known map[string]*guest
	// away are the uids of guests that were migrated to another host. Where libvirt then
	// forgets the domain, nothing else tells that from one that was undefined.
	away map[string]bool
}

type guest struct {
	proxy     string
	addresses []netip.Addr
	silent    time.Time // without an address since; zero: it has one
}

func newGuests() guests { return guests{known: map[string]*guest{}, away: map[string]bool{}} }

// saw takes the addresses of a running guest, if they were read. It returns with whom it
// shares one, if with anybody, and for how long it has had none.
func (g *guests) saw(m backends.Mark, found []netip.Addr, unread bool, now time.Time) (shared string, silent time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.known[m.UID]
	if one == nil {
		one = &guest{proxy: m.Proxy}
		g.known[m.UID] = one
	}
	switch {
	case len(found) > 0:
		one.addresses, one.silent = found, time.Time{}
	case unread && len(one.addresses) > 0: // it may well have them still
	case one.silent.IsZero():
		one.addresses, one.silent = nil, now
	}
	if !one.silent.IsZero() {
		silent = now.Sub(one.silent)
	}
	for _, a := range one.addresses {
		if others := g.sharers(a, m.UID); len(others) > 0 {
			return fmt.Sprintf("address %s is also that of proxy %s", a, others[0]), silent
		}
	}
	return "", silent
}

// sharers are the other guests with an address, by the names of their proxies.
func (g *guests) sharers(a netip.Addr, but string) []string {
	var found []string
	for uid, one := range g.known {
		if uid != but && slices.Contains(one.addresses, a) {
			found = append(found, one.proxy)
		}
	}
	slices.Sort(found)
	return found
}

// stopped forgets one that does not run, whose address may be another's now.
func (g *guests) stopped(uid string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, uid)
}

// left notes that a guest was migrated away, or that its domain is here (again).
func (g *guests) left(uid string, away bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if away {
		g.away[uid] = true
	} else {
		delete(g.away, uid)
	}
}

// isAway reports whether a guest was last heard of when it was migrated away.
func (g *guests) isAway(uid string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.away[uid]
}

// only forgets all but those that run.
func (g *guests) only(running map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.known, func(uid string, _ *guest) bool { return !running[uid] })
}

// shared lists the addresses that several guests have, and counts those that are known: an
// agent that has just started knows none.
func (g *guests) shared() (found []string, known int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	proxies := map[netip.Addr][]string{}
	for _, one := range g.known {
		for _, a := range one.addresses {
			proxies[a] = append(proxies[a], one.proxy)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(proxies), netip.Addr.Compare) {
		if names := proxies[a]; len(names) > 1 {
			slices.Sort(names)
			found = append(found, fmt.Sprintf("%s of %s", a, names))
		}
	}
	return found, len(g.known)
}
