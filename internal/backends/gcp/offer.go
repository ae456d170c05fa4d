package gcp

import (
	"context"
	"math"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// Offer implements [backends.Backend]. Capacity follows the quotas of the regions and of the
// project, less what others use; a proxy must still fit one region, which Ensure looks after.
// Memory has no quota.
func (b *Backend) Offer(ctx context.Context) (backends.Offer, error) {
	zones, err := b.allowed(ctx, "")
	if err != nil {
		return backends.Offer{}, err
	}
	o := backends.Offer{DefaultDiskGiB: b.host.Defaults.DiskGiB, Zones: zones}
	for _, key := range sorted(b.host.Images) {
		if b.host.Images[key].Family != "" {
			o.Images = append(o.Images, key)
		}
	}
	if b.host.Images[b.host.Defaults.Image].Family != "" {
		o.DefaultImage = b.host.Defaults.Image
	}
	var shapes []backends.MachineType
	for _, key := range sorted(b.host.MachineTypes) {
		s, err := b.shape(ctx, zones, b.host.MachineTypes[key])
		if err != nil {
			return backends.Offer{}, err
		}
		if s.VCPUs == 0 {
			continue // no zone has it; the check says so
		}
		shapes = append(shapes, s)
		o.MachineTypes = append(o.MachineTypes, backends.Shape{Name: key, VCPUs: s.VCPUs, MemoryMiB: s.MemoryMiB})
		if key == b.host.Defaults.MachineType {
			o.DefaultMachineType = key
		}
	}
	if o.Capacity, err = b.capacity(ctx, zones, shapes); err != nil {
		return backends.Offer{}, err
	}
	return o, nil
}

// ledger is what one region has, and what of it is used by our own.
type ledger struct {
	have map[string]*computepb.Quota
	ours map[string]float64
}

// room is what of a quota proxies have: all that is left and what they use already. A quota that is
// not counted is no limit.
func (l ledger) room(metric string) float64 {
	q := l.have[metric]
	if q == nil {
		return math.Inf(1)
	}
	return left(q) + l.ours[metric]
}

func (b *Backend) capacity(ctx context.Context, zones []string, shapes []backends.MachineType) (backends.Capacity, error) {
	p, err := b.project(ctx)
	if err != nil {
		return backends.Capacity{}, err
	}
	mine, err := b.api.allInstances(ctx, ownedBy(ownerOf(b.owner)))
	if err != nil {
		return backends.Capacity{}, classify("list instances", err, "the instances of project %s cannot be listed", b.conf.Project)
	}
	whole := ledger{have: quotasOf(p.GetQuotas()), ours: map[string]float64{}}
	regions := map[string]ledger{}
	for _, z := range zones {
		name := regionOf(z)
		if _, done := regions[name]; done {
			continue
		}
		r, err := b.region(ctx, name, 0)
		if err != nil {
			return backends.Capacity{}, err
		}
		regions[name] = ledger{have: quotasOf(r.GetQuotas()), ours: map[string]float64{}}
	}
	cpus := map[string]int{}
	for _, s := range shapes {
		cpus[s.Name] = s.VCPUs
	}
	for _, i := range mine.items {
		if l, ok := regions[regionOf(zoneOf(i.GetZone()))]; ok {
			b.count(i, cpus, l, whole)
		}
	}
	return b.sum(regions, whole, shapes), nil
}

// count enters what an instance of ours uses. One that does not run has no processors and no
// address. processors are those of each machine type by its name.
func (b *Backend) count(i *computepb.Instance, processors map[string]int, l, whole ledger) {
	l.ours[quotaInstances]++
	if metric := diskQuota(b.conf.DiskType); metric != "" {
		for _, d := range i.GetDisks() {
			l.ours[metric] += float64(d.GetDiskSizeGb())
		}
	}
	if b.conf.ReservedAddress && hasAccess(i) {
		l.ours[quotaStatic]++
	}
	if *b.conf.Firewall.Manage {
		whole.ours[quotaFirewalls]++
	}
	switch i.GetStatus() {
	case statusStopped, statusTerminated, statusSuspended:
		return
	}
	name := zoneOf(i.GetMachineType())
	cpus := float64(processors[name])
	metric := cpuQuota(name)
	if isSpot(i) && l.have[quotaSpotCPUs].GetLimit() > 0 {
		metric = quotaSpotCPUs
	}
	l.ours[metric] += cpus
	whole.ours[quotaAllCPUs] += cpus
	if hasAccess(i) {
		l.ours[quotaInUse]++
	}
}

// sum is what the regions have together, within what the project has.
func (b *Backend) sum(regions map[string]ledger, whole ledger, shapes []backends.MachineType) backends.Capacity {
	var cpus, disk, slots float64
	for _, l := range regions {
		seen := map[string]bool{}
		for _, s := range shapes {
			metric := cpuQuota(s.Name)
			if s.Spot && l.have[quotaSpotCPUs].GetLimit() > 0 {
				metric = quotaSpotCPUs
			}
			if !seen[metric] {
				seen[metric] = true
				cpus += l.room(metric)
			}
		}
		n := l.room(quotaInstances)
		if b.conf.Address == external {
			n = min(n, l.room(quotaInUse))
			if b.conf.ReservedAddress {
				n = min(n, l.room(quotaStatic))
			}
		}
		slots += n
		disk += l.room(diskQuota(b.conf.DiskType))
	}
	cpus = min(cpus, whole.room(quotaAllCPUs))
	if *b.conf.Firewall.Manage && b.networkProject() == b.conf.Project {
		slots = min(slots, whole.room(quotaFirewalls))
	}
	if most := b.host.Limits.Slots; most > 0 {
		slots = min(slots, float64(most))
	}
	return backends.Capacity{VCPUs: counted(cpus), MemoryMiB: -1, DiskGiB: counted(disk), Slots: counted(slots)}
}

// counted is a number of things, -1 for no limit.
func counted(n float64) int {
	if math.IsInf(n, 1) || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}
