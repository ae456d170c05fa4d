package proxmox

import (
	"context"
	"maps"
	"slices"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

func (b *Backend) rules() rules {
	return rules{conf: b.conf, limits: b.host.Limits, ours: b.tagged}
}

// tagged reports a VM that has our tag, or looks like one that is about to get it.
func (b *Backend) tagged(v pve.VM) bool {
	return b.looksOurs(v) && slices.Contains(v.Tags, b.ownerTag) || v.Name != "" && b.marks.isOurs(v, b.owner)
}

// count is how many VMs of ours there are.
func (b *Backend) count(snap *snapshot) int {
	n := 0
	for _, v := range snap.VMs {
		if b.tagged(v) {
			n++
		}
	}
	return n
}

// Offer implements [backends.Backend]. An image is offered while a template of it can be
// cloned somewhere. Capacity is that of all allowed nodes that are online, less what VMs
// that are not ours use; a single proxy must still fit one node, which Ensure looks after.
func (b *Backend) Offer(ctx context.Context) (backends.Offer, error) {
	snap, err := b.inv.recent(ctx, recentEnough)
	if err != nil {
		return backends.Offer{}, classify("list resources", err, "the cluster's resources cannot be listed")
	}
	if err := b.sees(snap); err != nil {
		return backends.Offer{}, err
	}
	r := b.rules()
	o := backends.Offer{DefaultMachineType: b.host.Defaults.MachineType, DefaultDiskGiB: b.host.Defaults.DiskGiB}
	storages := map[seat]bool{}
	for _, key := range slices.Sorted(maps.Keys(b.host.Images)) {
		if b.host.Images[key].Template == "" {
			continue
		}
		templates, err := b.templates(ctx, snap, key)
		if err != nil {
			if c := backends.Class(err); c != backends.ErrPermanent {
				return backends.Offer{}, err
			}
			continue
		}
		places, _ := r.places(snap, templates)
		if len(places) == 0 {
			continue
		}
		o.Images = append(o.Images, key)
		for _, p := range places {
			storages[seat{p.node, p.storage}] = true
		}
	}
	if slices.Contains(o.Images, b.host.Defaults.Image) {
		o.DefaultImage = b.host.Defaults.Image
	}
	for _, name := range slices.Sorted(maps.Keys(b.host.MachineTypes)) {
		t := b.host.MachineTypes[name]
		o.MachineTypes = append(o.MachineTypes, backends.Shape{Name: name, VCPUs: t.VCPUs, MemoryMiB: t.MemoryMiB})
	}
	o.Capacity = r.capacity(snap, storages)
	return o, nil
}

// capacity sums up the nodes and the storages that proxies' disks may go to; a shared
// storage counts once.
func (r rules) capacity(snap *snapshot, storages map[seat]bool) backends.Capacity {
	foreign := r
	foreign.ours = func(pve.VM) bool { return false }
	c := backends.Capacity{Slots: -1}
	if r.limits.Slots > 0 {
		c.Slots = r.limits.Slots
	}
	others := *snap
	others.Resources.VMs = slices.DeleteFunc(slices.Clone(snap.VMs), r.ours)
	for name, left := range foreign.rooms(&others, nil) {
		mine := int64(0) // what is in use now counts ours, which are to be counted in
		for _, v := range snap.VMs {
			if v.Node == name && r.ours(v) && v.Status == "running" {
				mine += v.Memory
			}
		}
		free := left.memory
		if factor(r.limits.Overcommit.Memory) <= 1 {
			free = min(free+mine, r.whole(snap, name))
		}
		c.MemoryMiB += int(max(free, 0) / mib)
		c.VCPUs += left.cpus
	}
	counted := map[string]bool{}
	free, size := int64(0), int64(0)
	for _, s := range snap.Storages {
		if !storages[seat{s.Node, s.Name}] || s.Shared && counted[s.Name] {
			continue
		}
		counted[s.Name] = counted[s.Name] || s.Shared
		left, total, _, _ := r.space(snap, s.Node, s.Name, "images", nil)
		free, size = free+max(left, 0), size+total
	}
	for _, v := range snap.VMs {
		if r.ours(v) {
			free += v.Disk // on one of these storages; thin ones have less of it to give back
		}
	}
	c.DiskGiB = int(min(free, size) / gib)
	return c
}

// whole is a node's memory for proxies if none of ours ran.
func (r rules) whole(snap *snapshot, node string) int64 {
	n := snap.nodes[node]
	total := n.Memory - int64(r.limits.Reserve.MemoryMiB)*mib
	for _, v := range snap.VMs {
		if v.Node == node && !v.Template && !r.ours(v) && v.Status == "running" {
			total -= v.Memory
		}
	}
	return total
}
