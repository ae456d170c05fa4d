package gcp

import (
	"context"
	"errors"
	"slices"

	compute "cloud.google.com/go/compute/apiv1"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/iterator"
)

// aggregate is a list over all zones or regions, and which of them did not answer.
type aggregate[T any] struct {
	items []T
	dark  []string // zones and regions, without path
}

// scope is what a zone or region has in one page.
type scope[T any] struct {
	key     string // "zones/europe-west1-b"
	items   []T
	warning *computepb.Warning
}

// gather reads all pages. Google leaves a scope that does not answer out of the list, with a
// warning in its place and its name beside the page.
func gather[P, T any](ctx context.Context, next func() (P, error), read func(P) scope[T], unreachables func() []string) (aggregate[T], error) {
	var out aggregate[T]
	for {
		p, err := next()
		for _, u := range unreachables() {
			out.darken(u)
		}
		if errors.Is(err, iterator.Done) {
			return out, nil
		}
		if err != nil {
			return out, heard(ctx, err)
		}
		s := read(p)
		if s.warning.GetCode() == computepb.Warning_UNREACHABLE.String() {
			out.darken(s.key)
		}
		out.items = append(out.items, s.items...)
	}
}

func (a *aggregate[T]) darken(link string) {
	if name := zoneOf(link); name != "" && !slices.Contains(a.dark, name) {
		a.dark = append(a.dark, name)
	}
}

// The filters that are used: everything of a name, and everything of an owner.
func named(name string) string  { return "name = " + name }
func ownedBy(tag string) string { return "labels." + labelOwner + " = " + tag }

func (a *api) allInstances(ctx context.Context, filter string) (aggregate[*computepb.Instance], error) {
	ctx, end := a.calls.carry(ctx)
	defer end()
	it := a.instances.AggregatedList(ctx, &computepb.AggregatedListInstancesRequest{Project: a.project, Filter: &filter})
	return gather(ctx, it.Next, func(p compute.InstancesScopedListPair) scope[*computepb.Instance] {
		return scope[*computepb.Instance]{p.Key, p.Value.GetInstances(), p.Value.GetWarning()}
	}, func() []string {
		page, _ := it.Response.(*computepb.InstanceAggregatedList)
		return page.GetUnreachables()
	})
}

func (a *api) allDisks(ctx context.Context, filter string) (aggregate[*computepb.Disk], error) {
	ctx, end := a.calls.carry(ctx)
	defer end()
	it := a.disks.AggregatedList(ctx, &computepb.AggregatedListDisksRequest{Project: a.project, Filter: &filter})
	return gather(ctx, it.Next, func(p compute.DisksScopedListPair) scope[*computepb.Disk] {
		return scope[*computepb.Disk]{p.Key, p.Value.GetDisks(), p.Value.GetWarning()}
	}, func() []string {
		page, _ := it.Response.(*computepb.DiskAggregatedList)
		return page.GetUnreachables()
	})
}

// allAddresses takes an empty filter for all: addresses get no labels in the call that makes them.
func (a *api) allAddresses(ctx context.Context, filter string) (aggregate[*computepb.Address], error) {
	ctx, end := a.calls.carry(ctx)
	defer end()
	it := a.addresses.AggregatedList(ctx, &computepb.AggregatedListAddressesRequest{Project: a.project, Filter: &filter})
	return gather(ctx, it.Next, func(p compute.AddressesScopedListPair) scope[*computepb.Address] {
		return scope[*computepb.Address]{p.Key, p.Value.GetAddresses(), p.Value.GetWarning()}
	}, func() []string {
		page, _ := it.Response.(*computepb.AddressAggregatedList)
		return page.GetUnreachables()
	})
}

// allFirewalls lists the rules of a project, which may be the host project of a shared network.
func (a *api) allFirewalls(ctx context.Context, project string) ([]*computepb.Firewall, error) {
	ctx, end := a.calls.carry(ctx)
	defer end()
	var out []*computepb.Firewall
	it := a.firewalls.List(ctx, &computepb.ListFirewallsRequest{Project: project})
	for {
		f, err := it.Next()
		if errors.Is(err, iterator.Done) {
			return out, nil
		}
		if err != nil {
			return nil, heard(ctx, err)
		}
		out = append(out, f)
	}
}
