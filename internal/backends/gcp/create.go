package gcp

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// create makes the instance, in the first zone that has room for it. It begins with the attempt
// that is open, if one is.
func (b *Backend) create(ctx context.Context, j *job, rec *record, m backends.Mark, f *found) (*computepb.Instance, error) {
	var zones []string
	var err error
	resumed := rec.Open != nil
	if !resumed {
		if zones, err = b.room(ctx, j, f.dark); err != nil {
			return nil, err
		}
		if err := b.dropDisks(ctx, f.disks); err != nil {
			return nil, err
		}
	}
	if err := b.openFirewall(ctx, j, m, f.firewalls); err != nil {
		return nil, err
	}
	var why []tried
	for {
		i, zone, err := b.next(ctx, j, rec, m, f, zones)
		switch {
		case err == nil:
			return i, nil
		case rec.Open != nil || zone == "":
			return nil, err
		}
		if _, other := elsewhere(err, zone, nil); !other {
			return nil, refusedInsert(j, zone, err)
		}
		why = append(why, tried{zone, err})
		if resumed {
			resumed = false
			// What lacks room is told below; the attempt has said more.
			if zones, _ = b.room(ctx, j, f.dark); ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
		zones = slices.DeleteFunc(zones, func(z string) bool { return z == zone })
		if zones, _ = elsewhere(err, zone, zones); len(zones) == 0 {
			return nil, nowhere(j, why)
		}
	}
}

// next carries out the open attempt, or without one opens the next in the first of zones. The zone
// is empty where it came to no attempt.
func (b *Backend) next(ctx context.Context, j *job, rec *record, m backends.Mark, f *found, zones []string) (i *computepb.Instance, zone string, err error) {
	fresh := rec.Open == nil
	zone = nextZone(rec, zones)
	ip, err := b.reserve(ctx, j, m, f, zone)
	if err != nil {
		return nil, "", err
	}
	if fresh {
		rec.begin(zone, time.Now())
		if err := b.records.put(ctx, "record.attempt", rec); err != nil {
			return nil, "", err
		}
	}
	i, err = b.attempt(ctx, j, rec, fresh, m, ip)
	if err != nil && rec.Open != nil {
		err = classify("insert instance", err, "proxy %s: whether its instance is being made in zone %s is not known; it is found out by asking again", j.Proxy, zone)
	}
	return i, zone, err
}

// nextZone is where the next attempt is.
func nextZone(rec *record, zones []string) string {
	if rec.Open != nil {
		return rec.Open.Zone
	}
	return zones[0]
}

// tried is a zone in which an instance could not be made, and why.
type tried struct {
	zone string
	err  error
}

// nowhere is the error after every zone was tried: ErrNoCapacity, unless none has the machine type.
func nowhere(j *job, why []tried) error {
	class := backends.ErrPermanent
	texts := make([]string, 0, len(why))
	causes := make([]error, 0, len(why))
	for _, t := range why {
		hint := "this machine type is not to be had there"
		if c := troubleOf(t.err); classOf(c) == backends.ErrNoCapacity {
			class, hint = backends.ErrNoCapacity, hints[c]
		}
		texts = append(texts, t.zone+" ("+hint+")")
		causes = append(causes, t.err)
	}
	return backends.Wrap(class, "insert instance", errors.Join(causes...), "proxy %s: no zone has room for machine type %s: %s; nothing of it is kept but its firewall rule and address",
		j.Proxy, j.shape.Name, strings.Join(texts, ", "))
}

// refusedInsert is the error of an insert that no other zone would mend.
func refusedInsert(j *job, zone string, err error) error {
	t := troubleOf(err)
	if t == absent || t == invalid {
		hint := "see the network, disk type and machine type in the agent's configuration"
		if text := strings.ToLower(err.Error()); strings.Contains(text, "image") {
			hint = "see image " + j.Image + " in the agent's configuration"
		}
		return backends.Wrap(backends.ErrPermanent, "insert instance", err, "proxy %s: zone %s does not take it; %s", j.Proxy, zone, hint)
	}
	return classify("insert instance", err, "proxy %s: its instance cannot be made in zone %s", j.Proxy, zone)
}

// dropDisks removes disks of ours that an earlier attempt or somebody has left, and that no instance
// has: they would be in the way of the next.
func (b *Backend) dropDisks(ctx context.Context, disks []*computepb.Disk) error {
	for _, d := range disks {
		if err := b.dropDisk(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) dropDisk(ctx context.Context, d *computepb.Disk) error {
	zone := zoneOf(d.GetZone())
	if err := backends.Step(ctx, "disk.delete"); err != nil {
		return err
	}
	op, err := b.api.disks.Delete(ctx, &computepb.DeleteDiskRequest{Project: b.conf.Project, Zone: zone, Disk: d.GetName()})
	return b.removed(ctx, b.conf.Project, "delete disk", "disk "+d.GetName()+" in zone "+zone, op, err)
}
