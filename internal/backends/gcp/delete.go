package gcp

import (
	"context"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// Delete implements [backends.Backend].
func (b *Backend) Delete(ctx context.Context, ref backends.Ref) error {
	if err := ref.Validate(); err != nil {
		return err
	}
	rec, err := b.records.get(ref.UID)
	if err != nil {
		return err
	}
	if err := b.settle(ctx, rec); err != nil {
		return err
	}
	f, err := b.survey(ctx, ref)
	if err != nil {
		return err
	}
	if err := b.remove(ctx, ref, f); err != nil {
		return err
	}
	silent, err := b.unseen(ctx, rec, f.dark)
	if err != nil {
		return err
	}
	if len(silent) > 0 {
		return backends.Errorf(backends.ErrTransient, "delete", "proxy %s: %s did not answer, so something of it may be left there; everything else is deleted", ref.Proxy, strings.Join(silent, ", "))
	}
	if err := b.records.remove(ctx, ref.UID); err != nil {
		return err
	}
	b.seen(ref.UID, "")
	return backends.Step(ctx, "done")
}

// remove removes what was found: the instance first, which uses the rest.
func (b *Backend) remove(ctx context.Context, ref backends.Ref, f found) error {
	for _, i := range f.instances {
		if err := b.removeInstance(ctx, ref, i); err != nil {
			return err
		}
	}
	for _, d := range f.disks {
		left, err := b.stillThere(ctx, ref, d)
		if err != nil {
			return err
		}
		if left {
			if err := b.dropDisk(ctx, d); err != nil {
				return err
			}
		}
	}
	for _, a := range f.addresses {
		if err := b.release(ctx, a); err != nil {
			return err
		}
	}
	for _, w := range f.firewalls {
		if err := b.closeFirewall(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// removeInstance deletes an instance with the disks that go with it, and waits until that is done.
// Whose it is is read once more right before.
func (b *Backend) removeInstance(ctx context.Context, ref backends.Ref, i *computepb.Instance) error {
	zone := zoneOf(i.GetZone())
	i, err := b.get(ctx, zone, i.GetName())
	if isAbsent(err) {
		return nil
	}
	if err != nil {
		return classify("delete instance", err, "proxy %s: its instance in zone %s cannot be read", ref.Proxy, zone)
	}
	if err := b.verify(ref, i); err != nil {
		return err
	}
	if i.GetDeletionProtection() {
		return backends.Errorf(backends.ErrConflict, "delete instance", "proxy %s: instance %s in zone %s is protected against deletion: somebody wants to keep it; take the protection off first", ref.Proxy, i.GetName(), zone)
	}
	if err := backends.Step(ctx, "instance.delete"); err != nil {
		return err
	}
	op, err := b.api.instances.Delete(ctx, &computepb.DeleteInstanceRequest{Project: b.conf.Project, Zone: zone, Instance: i.GetName()})
	return b.removed(ctx, b.conf.Project, "delete instance", "proxy "+ref.Proxy+": instance "+i.GetName()+" in zone "+zone, op, err)
}

// stillThere reports whether a disk is left after its instance went. One that somebody has attached
// to another machine is his.
func (b *Backend) stillThere(ctx context.Context, ref backends.Ref, d *computepb.Disk) (bool, error) {
	zone := zoneOf(d.GetZone())
	d, err := b.api.disks.Get(ctx, &computepb.GetDiskRequest{Project: b.conf.Project, Zone: zone, Disk: d.GetName()})
	if err = heard(ctx, err); isAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, classify("delete disk", err, "proxy %s: whether its disk in zone %s is left cannot be read", ref.Proxy, zone)
	}
	if users := d.GetUsers(); len(users) > 0 {
		return false, backends.Errorf(backends.ErrConflict, "delete disk", "proxy %s: disk %s in zone %s is attached to %s; detach it first, the rest is deleted then", ref.Proxy, d.GetName(), zone, zoneOf(users[0]))
	}
	return true, nil
}

// unseen are the places that did not answer and may have something of a uid: those in which it was
// ever asked for, with their regions, or without a record all of this host's.
func (b *Backend) unseen(ctx context.Context, rec *record, dark []string) ([]string, error) {
	if len(dark) == 0 {
		return nil, nil
	}
	zones := []string{}
	if rec != nil {
		zones = rec.Zones
	} else {
		var err error
		if zones, err = b.allowed(ctx, ""); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(dark), func(d string) bool {
		return !slices.ContainsFunc(zones, func(z string) bool { return z == d || regionOf(z) == d })
	}), nil
}
