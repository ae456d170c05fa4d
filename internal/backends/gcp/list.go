package gcp

import (
	"context"
	"slices"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"golang.org/x/sync/errgroup"

	"proxyfleet/internal/backends"
)

// List implements [backends.Backend], in four requests for each page: instances and disks by our
// label, addresses and firewall rules all. While some zone does not answer there are no leftovers:
// what they belong to may be there.
func (b *Backend) List(ctx context.Context) (backends.Listing, error) {
	var instances aggregate[*computepb.Instance]
	var disks aggregate[*computepb.Disk]
	var addresses aggregate[*computepb.Address]
	var firewalls []*computepb.Firewall
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { instances, err = b.api.allInstances(gctx, ownedBy(ownerOf(b.owner))); return err })
	g.Go(func() (err error) { disks, err = b.api.allDisks(gctx, ownedBy(ownerOf(b.owner))); return err })
	g.Go(func() (err error) { addresses, err = b.api.allAddresses(gctx, ""); return err })
	g.Go(func() (err error) { firewalls, err = b.api.allFirewalls(gctx, b.networkProject()); return err })
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return backends.Listing{}, classify("list", err, "what proxyfleet has in project %s cannot be listed", b.conf.Project)
	}
	recs, err := b.records.all()
	if err != nil {
		return backends.Listing{}, err
	}
	l := listing{b: b, uids: map[string]bool{}}
	l.instances(instances.items)
	for _, d := range distinct(slices.Concat(instances.dark, disks.dark, addresses.dark)) {
		l.out.Unread = append(l.out.Unread, backends.Unread{What: d,
			Err: backends.Errorf(backends.ErrTransient, "list", "%s does not answer; what is there is not known, and not gone", d)})
	}
	if len(l.out.Unread) == 0 {
		l.leftovers(disks.items, addresses.items, firewalls, recs)
	}
	return l.out, nil
}

// listing is one that is being made.
type listing struct {
	b    *Backend
	out  backends.Listing
	uids map[string]bool // that have an instance
}

// instances takes those that are ours; the label that they were found by proves nothing.
func (l *listing) instances(all []*computepb.Instance) {
	for _, i := range all {
		m, ok := readLabels(i.GetLabels(), l.b.owner)
		if !ok || !m.Owned(l.b.owner) || i.GetName() != backends.InstanceName(m.UID) {
			continue
		}
		if !l.uids[m.UID] {
			l.out.Instances = append(l.out.Instances, l.b.instance(i))
		}
		l.uids[m.UID] = true
		l.b.seen(m.UID, zoneOf(i.GetZone()))
	}
	slices.SortFunc(l.out.Instances, func(x, y backends.Instance) int { return strings.Compare(x.Mark.UID, y.Mark.UID) })
}

// leftovers are disks, addresses, rules and records whose instance does not exist.
func (l *listing) leftovers(disks []*computepb.Disk, addresses []*computepb.Address, firewalls []*computepb.Firewall, recs []*record) {
	for _, d := range disks {
		m, ok := readLabels(d.GetLabels(), l.b.owner)
		l.leftover(m, ok, "disk", d.GetName(), zoneOf(d.GetZone()))
	}
	for _, a := range addresses {
		m, ok := readDescription(a.GetDescription())
		l.leftover(m, ok, "address", a.GetName(), zoneOf(a.GetRegion()))
	}
	for _, f := range firewalls {
		m, ok := readDescription(f.GetDescription())
		l.leftover(m, ok, "firewall", f.GetName(), l.b.networkProject())
	}
	for _, r := range recs {
		m := backends.Mark{Installation: l.b.owner.Installation, HostID: l.b.owner.HostID, Proxy: r.Proxy, UID: r.UID, CreatedAt: r.CreatedAt}
		l.leftover(m, true, "state", backends.InstanceName(r.UID), "record")
	}
}

// leftover takes a thing that carries our mark and has no instance. A disk that somebody has made
// from one of ours has its labels, and another name.
func (l *listing) leftover(m backends.Mark, marked bool, kind, name, where string) {
	if !marked || !m.Owned(l.b.owner) || l.uids[m.UID] || !slices.Contains(firewallNames(backends.InstanceName(m.UID)), name) {
		return
	}
	l.out.Leftovers = append(l.out.Leftovers, backends.Leftover{Mark: m, Kind: kind, Name: where + "/" + name})
}
