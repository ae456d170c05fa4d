package proxmox

import (
	"context"
	"errors"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// removeSeeds removes every seed of a uid, on every node.
func (b *Backend) removeSeeds(ctx context.Context, ref backends.Ref) error {
	snap, err := b.inv.recent(ctx, recentEnough)
	if err != nil {
		return classify("list resources", err, "the cluster's storages cannot be listed")
	}
	seeds, unread := b.seeds(ctx, snap)
	for _, s := range seeds {
		if s.mark.UID != ref.UID {
			continue
		}
		if err := b.notInUse(ctx, s); err != nil {
			return err
		}
		if err := backends.Step(ctx, "seed.delete"); err != nil {
			return err
		}
		if err := b.removeVolume(ctx, s.node, s.storage, s.volume.ID); err != nil {
			return classify("delete seed", err, "the seed %s of proxy %s on node %s cannot be removed", s.volume.ID, ref.Proxy, s.node)
		}
	}
	if len(unread) > 0 {
		u := unread[0]
		return backends.Wrap(backends.Class(u.Err), "delete seed", u.Err, "%s: whether one of proxy %s is left there is not known", u.What, ref.Proxy)
	}
	return nil
}

// notInUse refuses to remove a seed that a VM has in its drive, which PVE would do without
// a word: somebody may have cloned the proxy's VM. Only a copy of one of ours can have it,
// and copies keep our tag.
func (b *Backend) notInUse(ctx context.Context, s placed) error {
	snap, err := b.inv.fresh(ctx)
	if err != nil {
		return classify("list resources", err, "the cluster's VMs cannot be listed")
	}
	for _, vm := range snap.VMs {
		if vm.Type != "qemu" || !b.looksOurs(vm) && !slices.Contains(vm.Tags, b.ownerTag) {
			continue
		}
		e, ok := b.marks.get(vm, time.Now())
		if !ok {
			now, conf, err := b.configOf(ctx, vm)
			if errors.Is(err, errAbsent) {
				continue
			}
			if err != nil {
				return classify("delete seed", err, "whether VM %d has the seed of proxy %s in its drive is not known", vm.ID, s.mark.Proxy)
			}
			e = b.marks.put(now, conf, time.Now())
		}
		if slices.Contains(e.cds, s.volume.ID) {
			return backends.Errorf(backends.ErrConflict, "delete seed",
				"the seed %s of proxy %s is in the drive of VM %d (%s) on node %s, which is not the proxy's; take it out there first",
				s.volume.ID, s.mark.Proxy, vm.ID, e.name, vm.Node)
		}
	}
	return nil
}

// removeStraySeeds removes seeds of a VM on storages that are no longer the configured one:
// once the VM is gone nothing leads to them.
func (b *Backend) removeStraySeeds(ctx context.Context, f found) error {
	for key, option := range f.conf {
		volume := volumeOf(option)
		if !isDiskSlot(key) || storageOf(volume) == b.conf.SeedStorage {
			continue
		}
		if m, ok := parseSeed(pve.Volume{ID: volume}); !ok || !m.Owned(b.owner) || m.UID != f.mark.UID {
			continue
		}
		if err := backends.Step(ctx, "seed.delete"); err != nil {
			return err
		}
		if err := b.removeVolume(ctx, f.vm.Node, storageOf(volume), volume); err != nil {
			return classify("delete seed", err, "the seed %s of proxy %s on node %s cannot be removed", volume, f.mark.Proxy, f.vm.Node)
		}
	}
	return nil
}
