package gcp

import (
	"context"
	"fmt"
	"net/netip"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/protobuf/proto"

	"proxyfleet/internal/backends"
)

// reserve returns the static address of a job in the region of zone, made if it is not there, and
// empty where none is asked for. One in another region, from before the zone changed, is released.
func (b *Backend) reserve(ctx context.Context, j *job, m backends.Mark, f *found, zone string) (string, error) {
	if !b.conf.ReservedAddress {
		return "", nil
	}
	region := regionOf(zone)
	var have *computepb.Address
	for _, a := range f.addresses {
		if zoneOf(a.GetRegion()) == region {
			have = a
			continue
		}
		if err := b.release(ctx, a); err != nil {
			return "", err
		}
	}
	j.step("reserving an address")
	if have == nil {
		if err := b.askAddress(ctx, j, m, region); err != nil {
			return "", err
		}
	}
	for have.GetAddress() == "" || have.GetStatus() == "RESERVING" {
		a, err := b.api.addresses.Get(ctx, &computepb.GetAddressRequest{Project: b.conf.Project, Region: region, Address: j.name()})
		if have, err = a, heard(ctx, err); err != nil {
			return "", classify("reserve address", err, "proxy %s: address %s in %s cannot be read", j.Proxy, j.name(), region)
		}
		if have.GetStatus() == "RESERVING" {
			if err := sleep(ctx, b.poll); err != nil {
				return "", err
			}
		}
	}
	f.addresses = []*computepb.Address{have}
	return have.GetAddress(), nil
}

func (b *Backend) askAddress(ctx context.Context, j *job, m backends.Mark, region string) error {
	a := &computepb.Address{Name: proto.String(j.name()), Description: proto.String(describe(m)), AddressType: proto.String("EXTERNAL")}
	if !j.external {
		a.AddressType = proto.String("INTERNAL")
		a.Subnetwork = proto.String(b.subnetPath(region))
	}
	if err := backends.Step(ctx, "address.insert"); err != nil {
		return err
	}
	asked, err := b.api.addresses.Insert(ctx, &computepb.InsertAddressRequest{Project: b.conf.Project, Region: region, AddressResource: a})
	op, err := started(ctx, asked, err)
	if err == nil {
		err = b.follow(ctx, b.conf.Project, op, "", nil)
	}
	return classify("reserve address", err, "proxy %s: address %s cannot be reserved in %s", j.Proxy, j.name(), region)
}

// release gives a static address back.
func (b *Backend) release(ctx context.Context, a *computepb.Address) error {
	if err := backends.Step(ctx, "address.delete"); err != nil {
		return err
	}
	region := zoneOf(a.GetRegion())
	op, err := b.api.addresses.Delete(ctx, &computepb.DeleteAddressRequest{Project: b.conf.Project, Region: region, Address: a.GetName()})
	return b.removed(ctx, b.conf.Project, "release address", fmt.Sprintf("address %s in %s", a.GetName(), region), op, err)
}

// subnetPath is the subnetwork in a region: the configured one, or that of an auto mode network.
func (b *Backend) subnetPath(region string) string {
	if subnetForm.MatchString(b.conf.Subnetwork) {
		return b.conf.Subnetwork
	}
	name := b.conf.Subnetwork
	if name == "" {
		name = zoneOf(b.conf.Network)
	}
	return "projects/" + b.networkProject() + "/regions/" + region + "/subnetworks/" + name
}

// addressesOf are those of an instance at which clients reach it: its external ones, or without any
// the internal.
func addressesOf(i *computepb.Instance, v6 bool) []netip.Addr {
	var outside, inside []netip.Addr
	for _, nic := range i.GetNetworkInterfaces() {
		inside = appendAddr(inside, nic.GetNetworkIP())
		for _, a := range nic.GetAccessConfigs() {
			outside = appendAddr(outside, a.GetNatIP())
		}
		if !v6 {
			continue
		}
		inside = appendAddr(inside, nic.GetIpv6Address())
		for _, a := range nic.GetIpv6AccessConfigs() {
			outside = appendAddr(outside, a.GetExternalIpv6())
		}
	}
	if hasAccess(i) {
		return outside
	}
	return inside
}

// hasAccess reports an instance that is to have an external address, whether it has it now or not.
func hasAccess(i *computepb.Instance) bool {
	for _, nic := range i.GetNetworkInterfaces() {
		if len(nic.GetAccessConfigs()) > 0 {
			return true
		}
	}
	return false
}

func appendAddr(to []netip.Addr, text string) []netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsUnspecified() {
		return to
	}
	return append(to, a.Unmap())
}
