package gcp

import (
	"context"

	"proxyfleet/internal/backends"
)

// Watch implements [backends.Watcher]. GCE has no events that an agent can wait for: what changed is
// found by comparing listings of the instances, one request each.
func (b *Backend) Watch(ctx context.Context) <-chan backends.Event {
	var feed backends.Feed
	events := feed.Watch(ctx)
	go b.look(ctx, &feed)
	return events
}

func (b *Backend) look(ctx context.Context, feed *backends.Feed) {
	var before map[string]string
	failing := false
	for {
		now, err := b.statuses(ctx, before)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failing {
				b.log.WarnContext(ctx, "the project cannot be watched; trying again", "err", err)
			}
			failing = true
		default:
			// What happened between a caller's own listing and this look shows in no later one.
			switch {
			case before == nil:
				feed.Send(backends.Event{Reason: "Connected"})
			case failing:
				feed.Send(backends.Event{Reason: "Reconnected"})
			}
			failing = false
			for _, e := range changes(before, now) {
				feed.Send(e)
			}
			before = now
		}
		if sleep(ctx, b.watch) != nil {
			return
		}
	}
}

// statuses are what our instances do, by uid. Those in a zone that does not answer do what they did
// before.
func (b *Backend) statuses(ctx context.Context, before map[string]string) (map[string]string, error) {
	all, err := b.api.allInstances(ctx, ownedBy(ownerOf(b.owner)))
	if err != nil {
		return nil, classify("list instances", err, "the instances of project %s cannot be listed", b.conf.Project)
	}
	now := map[string]string{}
	if len(all.dark) > 0 {
		for uid, status := range before {
			now[uid] = status
		}
	}
	for _, i := range all.items {
		if m, ok := readLabels(i.GetLabels(), b.owner); ok && m.Owned(b.owner) {
			now[m.UID] = i.GetStatus()
		}
	}
	return now, nil
}

// changes are events for the uids that differ. The first look has nothing to compare with.
func changes(before, now map[string]string) (out []backends.Event) {
	if before == nil {
		return nil
	}
	for uid, status := range now {
		if was, had := before[uid]; !had || was != status {
			out = append(out, backends.Event{UID: uid, Reason: "Status:" + status})
		}
	}
	for uid := range before {
		if _, still := now[uid]; !still {
			out = append(out, backends.Event{UID: uid, Reason: "Vanished"})
		}
	}
	return out
}
