package gcp

import (
	"context"
	"slices"

	"cloud.google.com/go/compute/apiv1/computepb"
	"golang.org/x/sync/errgroup"

	"proxyfleet/internal/backends"
)

// found is everything that has a uid's name, all of it ours.
type found struct {
	instances []*computepb.Instance // the oldest first; more than one only if records were lost
	disks     []*computepb.Disk
	addresses []*computepb.Address
	firewalls []*computepb.Firewall
	dark      []string // zones and regions that did not answer
}

// survey reads everything of ref, in all zones. Whatever of it is not ours, or of another uid, is
// ErrConflict.
func (b *Backend) survey(ctx context.Context, ref backends.Ref) (found, error) {
	name := backends.InstanceName(ref.UID)
	var instances aggregate[*computepb.Instance]
	var disks aggregate[*computepb.Disk]
	var addresses aggregate[*computepb.Address]
	firewalls := make([]*computepb.Firewall, len(firewallNames(name)))
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { instances, err = b.api.allInstances(gctx, named(name)); return err })
	g.Go(func() (err error) { disks, err = b.api.allDisks(gctx, named(name)); return err })
	g.Go(func() (err error) { addresses, err = b.api.allAddresses(gctx, named(name)); return err })
	for i, n := range firewallNames(name) {
		g.Go(func() error {
			f, err := b.api.firewalls.Get(gctx, &computepb.GetFirewallRequest{Project: b.networkProject(), Firewall: n})
			if err = heard(gctx, err); isAbsent(err) {
				return nil
			}
			firewalls[i] = f
			return err
		})
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return found{}, classify("look for instance", err, "proxy %s: what is there for it cannot be listed", ref.Proxy)
	}
	f := found{instances: instances.items, disks: disks.items, addresses: addresses.items,
		firewalls: slices.DeleteFunc(firewalls, func(f *computepb.Firewall) bool { return f == nil }),
		dark:      distinct(slices.Concat(instances.dark, disks.dark, addresses.dark))}
	slices.SortFunc(f.instances, func(x, y *computepb.Instance) int { return int(int64(x.GetId()) - int64(y.GetId())) })
	return f, b.ours(ref, f)
}

// ours refuses what does not carry the mark of ref.
func (b *Backend) ours(ref backends.Ref, f found) error {
	for _, i := range f.instances {
		if err := b.verify(ref, i); err != nil {
			return err
		}
	}
	for _, d := range f.disks {
		if m, ok := readLabels(d.GetLabels(), b.owner); !ok || !is(m, ref, b.owner) {
			return conflict(ref, "disk", d.GetName(), zoneOf(d.GetZone()))
		}
	}
	for _, a := range f.addresses {
		if m, ok := readDescription(a.GetDescription()); !ok || !is(m, ref, b.owner) {
			return conflict(ref, "address", a.GetName(), zoneOf(a.GetRegion()))
		}
	}
	for _, w := range f.firewalls {
		if m, ok := readDescription(w.GetDescription()); !ok || !is(m, ref, b.owner) {
			return conflict(ref, "firewall rule", w.GetName(), "project "+b.networkProject())
		}
	}
	return nil
}

// verify refuses an instance that does not carry the mark of ref.
func (b *Backend) verify(ref backends.Ref, i *computepb.Instance) error {
	if m, ok := readLabels(i.GetLabels(), b.owner); !ok || !is(m, ref, b.owner) {
		return conflict(ref, "instance", i.GetName(), zoneOf(i.GetZone()))
	}
	return nil
}

func conflict(ref backends.Ref, kind, name, where string) error {
	return backends.Errorf(backends.ErrConflict, "verify owner",
		"proxy %s: %s %s in %s is not this agent's for uid %s: it has no mark, or another's; nothing was touched, remove or rename it", ref.Proxy, kind, name, where, ref.UID)
}
