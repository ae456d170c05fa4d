package proxmox

import (
	"context"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// PVE has no events. What changed is found by comparing listings: often right after a
// change, since more tends to follow, and ever more seldom in quiet. pvestatd refreshes
// power every ten seconds, so asking more often than the shortest pause shows nothing.
const watchMax = 30 * time.Second

// pace is the pause before the next look.
func pace(last time.Duration, changed bool, shortest time.Duration) time.Duration {
	if changed || last == 0 {
		return shortest
	}
	return min(last*3/2, max(watchMax, shortest))
}

// Watch implements [backends.Watcher] by polling /cluster/resources, one request each time,
// shared with whatever else asks at that moment.
func (b *Backend) Watch(ctx context.Context) <-chan backends.Event {
	var feed backends.Feed
	events := feed.Watch(ctx)
	go b.watch(ctx, &feed)
	return events
}

func (b *Backend) watch(ctx context.Context, feed *backends.Feed) {
	var before map[int]pve.VM
	var pause time.Duration
	failing := false
	for {
		snap, err := b.inv.recent(ctx, b.watchMin/2)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				b.log.WarnContext(ctx, "the cluster cannot be watched; trying again", "err", err)
			}
			failing = true
			pause = pace(pause, false, b.watchMin)
		default:
			// What happened between a caller's own listing and this look shows in no later
			// comparison.
			switch {
			case before == nil:
				feed.Send(backends.Event{Reason: "Connected"})
			case failing:
				feed.Send(backends.Event{Reason: "Reconnected"})
			}
			failing = false
			now := b.watched(snap)
			changes := b.changes(before, now)
			for _, e := range changes {
				feed.Send(e)
			}
			pause = pace(pause, len(changes) > 0, b.watchMin)
			before = now
		}
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// watched are the VMs that may be ours.
func (b *Backend) watched(snap *snapshot) map[int]pve.VM {
	out := map[int]pve.VM{}
	for _, v := range snap.VMs {
		if b.looksOurs(v) {
			if snap.offline(v.Node) {
				v.Status = "unknown"
			}
			out[v.ID] = v
		}
	}
	return out
}

// changes are events for the VMs that differ. The first look has nothing to compare with.
func (b *Backend) changes(before, now map[int]pve.VM) []backends.Event {
	if before == nil {
		return nil
	}
	var out []backends.Event
	tell := func(id int, reason string) {
		out = append(out, backends.Event{UID: b.marks.uid(id), Reason: reason})
	}
	for id, v := range now {
		old, had := before[id]
		switch {
		case !had:
			tell(id, "Appeared")
		case old.Status != v.Status:
			tell(id, "Status:"+v.Status)
		case old.Node != v.Node:
			tell(id, "Migrated")
		case old.Lock != v.Lock:
			tell(id, "Lock:"+v.Lock)
		case old.Name != v.Name || !slices.Equal(old.Tags, v.Tags):
			tell(id, "Renamed")
		}
	}
	for id := range before {
		if _, still := now[id]; !still {
			tell(id, "Vanished")
		}
	}
	return out
}
