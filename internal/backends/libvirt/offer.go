package libvirt

import (
	"context"
	"slices"

	"proxyfleet/internal/backends"
)

// Offer implements [backends.Backend]. Without a daemon there is nothing to offer, and the
// error says so.
func (b *Backend) Offer(ctx context.Context) (backends.Offer, error) {
	s, err := b.open(ctx)
	if err != nil {
		return backends.Offer{}, err
	}
	defer s.close()
	if _, err := b.virt(s); err != nil {
		return backends.Offer{}, err
	}
	p, err := b.pool(s)
	if err != nil {
		return backends.Offer{}, err
	}
	p.refresh(s)
	u, err := b.usage(s, p)
	if err != nil {
		return backends.Offer{}, err
	}
	o := backends.Offer{
		DefaultImage: b.host.Defaults.Image, ImageURLs: b.host.AllowImageURLs,
		DefaultMachineType: b.host.Defaults.MachineType, DefaultDiskGiB: b.host.Defaults.DiskGiB,
		Capacity: backends.Capacity{
			VCPUs: u.total.vcpus, MemoryMiB: u.total.memoryMiB, DiskGiB: int(u.total.diskBytes >> 30), Slots: u.slots,
		},
	}
	if o.DefaultDiskGiB == 0 {
		o.DefaultDiskGiB = defaultDiskGiB
	}
	for key := range b.host.Images {
		o.Images = append(o.Images, key)
	}
	slices.Sort(o.Images)
	for key, shape := range b.host.MachineTypes {
		o.MachineTypes = append(o.MachineTypes, backends.Shape{Name: key, VCPUs: shape.VCPUs, MemoryMiB: shape.MemoryMiB})
	}
	slices.SortFunc(o.MachineTypes, func(a, b backends.Shape) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return o, nil
}
