package kubernetes

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"proxyfleet/internal/backends"
)

// Offer implements [backends.Backend]: from what the informers hold, without a request.
func (b *Backend) Offer(ctx context.Context) (backends.Offer, error) {
	o := backends.Offer{Images: slices.Sorted(maps.Keys(b.host.Images)), DefaultImage: b.host.Defaults.Image,
		DefaultMachineType: b.host.Defaults.MachineType, DefaultDiskGiB: b.host.Defaults.DiskGiB}
	for _, k := range slices.Sorted(maps.Keys(b.host.MachineTypes)) {
		t := b.host.MachineTypes[k]
		o.MachineTypes = append(o.MachineTypes, backends.Shape{Name: k, VCPUs: t.VCPUs, MemoryMiB: t.MemoryMiB})
	}
	c, left, _, err := b.survey(ctx, space{})
	if err != nil {
		return backends.Offer{}, err
	}
	left = left.plus(c.ours)
	t := c.total()
	o.Capacity = backends.Capacity{
		VCPUs:     int(min(t.milliCPU, left.milliCPU) / 1000),
		MemoryMiB: int(max(min(t.memory, left.memory)/mib-int64(b.host.Limits.Reserve.MemoryMiB), 0)),
		DiskGiB:   -1, // a proxy keeps nothing
		Slots:     int(min(t.pods, left.pods)),
	}
	if n := b.host.Limits.Slots; n > 0 {
		o.Capacity.Slots = min(o.Capacity.Slots, n)
	}
	return o, nil
}

// survey reads the cluster, and what quotas leave and which of them has no room for s.
func (b *Backend) survey(ctx context.Context, s space) (c cluster, left space, exhausted string, err error) {
	if err := b.seen.synced(ctx); err != nil {
		return cluster{}, space{}, "", err
	}
	nodes, err := b.seen.nodes.List(labels.Everything())
	if err != nil {
		return cluster{}, space{}, "", err
	}
	pods, err := b.seen.pods.List(labels.Everything())
	if err != nil {
		return cluster{}, space{}, "", err
	}
	quotas, err := b.seen.quotas.List(labels.Everything())
	if err != nil {
		return cluster{}, space{}, "", err
	}
	left, exhausted = headroom(quotas, b.conf, s)
	return survey(rules{selector: labels.SelectorFromSet(b.conf.NodeSelector), tolerations: b.conf.tolerations(), own: labels.SelectorFromSet(b.ownLabels())}, nodes, pods), left, exhausted, nil
}

// room refuses what no node has room for, or no quota leaves room for, before anything is
// made. The scheduler and the quotas themselves decide in the end.
func (b *Backend) room(ctx context.Context, p plan) error {
	need := shapeSpace(p.shape)
	c, _, exhausted, err := b.survey(ctx, need)
	switch {
	case err != nil:
		return err
	case exhausted != "":
		return backends.Errorf(backends.ErrNoCapacity, "ensure", "proxy %s: quota %s of namespace %s leaves no room for it", p.req.Proxy, exhausted, b.conf.Namespace)
	case !c.fits(need):
		return backends.Errorf(backends.ErrNoCapacity, "ensure", "proxy %s asks for %d processors and %d MiB, which none of the %d nodes that may run it has left",
			p.req.Proxy, p.shape.VCPUs, p.shape.MemoryMiB, len(c.free))
	}
	return nil
}
