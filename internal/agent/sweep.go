package agent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

// minListGap keeps a backend that says "list again" in a storm from being listed in one.
const minListGap = time.Second

// maxUnclaimed of a host are reported, so that the host document stays far below the
// server's largest message (1 MiB). The rest follows as these are dealt with.
const maxUnclaimed = 1000

// sweeper compares listings with what is recorded. It belongs to one goroutine.
type sweeper struct {
	owner    backends.Owner
	grace    time.Duration
	reported []bus.Unclaimed
	seen     map[leftoverKey]time.Time // leftover → first listing that had it
}

type leftoverKey struct{ UID, Kind, Name string }

// look takes a listing and the recorded uids, and returns what nobody claims. What an
// incomplete listing lacks may be there: nothing is taken off the report then.
func (s *sweeper) look(l backends.Listing, recorded map[string]entry, now time.Time) []bus.Unclaimed {
	found := map[bus.Unclaimed]bool{}
	claimed := func(m backends.Mark) bool {
		_, ok := recorded[m.UID]
		return ok || !m.Owned(s.owner)
	}
	for _, i := range l.Instances {
		if !claimed(i.Mark) {
			found[bus.Unclaimed{Proxy: i.Mark.Proxy, UID: i.Mark.UID, Kind: "instance"}] = true
		}
	}
	before := s.seen
	s.seen = map[leftoverKey]time.Time{}
	for _, x := range l.Leftovers {
		if claimed(x.Mark) {
			continue
		}
		k := leftoverKey{x.Mark.UID, x.Kind, x.Name}
		first, again := before[k]
		if !again {
			first = now
		}
		s.seen[k] = first
		made := first
		if !x.Mark.CreatedAt.IsZero() {
			made = x.Mark.CreatedAt
		}
		if again && now.Sub(made) >= s.grace {
			found[bus.Unclaimed{Proxy: x.Mark.Proxy, UID: x.Mark.UID, Kind: x.Kind}] = true
		}
	}
	if len(l.Unread) > 0 {
		for k, t := range before {
			if _, ok := s.seen[k]; !ok {
				s.seen[k] = t
			}
		}
		for _, u := range s.reported {
			if _, ok := recorded[u.UID]; !ok {
				found[u] = true
			}
		}
	}
	s.reported = slices.SortedFunc(maps.Keys(found), func(a, b bus.Unclaimed) int {
		return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Kind, b.Kind))
	})
	return s.reported[:min(len(s.reported), maxUnclaimed)]
}

// listed tells a driver what a listing says of its uid; a difference makes it look itself,
// for the listing may be older than what the driver did meanwhile.
func (d *driver) listed(i backends.Instance, found, complete bool) {
	d.mu.Lock()
	o := d.observed
	busy := d.cancel != nil
	d.mu.Unlock()
	switch {
	case busy || o.Gone:
	case found && (!o.Exists || o.Status != i.Status):
		d.woken()
	case !found && complete && o.Exists:
		d.woken()
	}
}

// sweep lists now, and then every interval and whenever asked, until ctx ends.
func (a *Agent) sweep(ctx context.Context, b backends.Backend) error {
	me := a.id.get()
	s := &sweeper{owner: backends.Owner{Installation: me.Installation, HostID: me.HostID}, grace: a.cfg.Intervals.Grace}
	for {
		a.list(ctx, b, s)
		if !sleep(ctx, minListGap) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.listAgain:
		case <-time.After(around(a.cfg.Intervals.List, a.loop.policy.Spread())):
		}
	}
}

func (a *Agent) list(ctx context.Context, b backends.Backend, s *sweeper) {
	ctx, cancel := context.WithTimeout(ctx, readBudget)
	defer cancel()
	listing, err := b.List(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("cannot list what is on this host; nothing is concluded from that", "error", err)
		}
		return
	}
	for _, u := range listing.Unread {
		a.log.Warn("a part of this host could not be listed; nothing is concluded from that", "what", u.What, "err", u.Err)
	}
	byUID := map[string]backends.Instance{}
	for _, i := range listing.Instances {
		byUID[i.Mark.UID] = i
	}
	for _, d := range a.loop.all() {
		i, found := byUID[d.uid]
		d.listed(i, found, len(listing.Unread) == 0)
	}
	recorded, _ := a.record.snapshot()
	unclaimed := s.look(listing, recorded, time.Now())
	a.out.change(func(h *bus.Host) { h.Unclaimed = unclaimed })
}

// watch takes the backend's events, where it has any, until ctx ends.
func (a *Agent) watch(ctx context.Context, b backends.Backend) error {
	w, ok := b.(backends.Watcher)
	if !ok {
		return nil
	}
	for e := range w.Watch(ctx) {
		if e.UID == "" {
			a.log.Debug("the backend asks to be listed", "reason", e.Reason)
			// What others make and remove changes what is left for proxies.
			ask(a.listAgain)
			ask(a.checkAgain)
			continue
		}
		a.log.Debug("event", "uid", e.UID, "reason", e.Reason, "known", a.loop.woken(e.UID))
	}
	return nil
}

// ask wakes whoever waits for c, soon or now.
func ask(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits, or returns false when ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
