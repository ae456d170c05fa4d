package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// Delete implements [backends.Backend]: the VM with its disks, then its seeds wherever they
// are, then the record. A seed goes last, because its VM would not start without it, and
// because its name tells whose it is even when the VM is gone.
func (b *Backend) Delete(ctx context.Context, ref backends.Ref) error {
	if err := ref.Validate(); err != nil {
		return err
	}
	if err := b.removeVM(ctx, ref); err != nil {
		return err
	}
	b.promised.settle(ref.UID, false, time.Now())
	if err := b.removeSeeds(ctx, ref); err != nil {
		return err
	}
	if err := b.forget(ctx, ref.UID); err != nil {
		return err
	}
	return backends.Step(ctx, "done")
}

func (b *Backend) removeVM(ctx context.Context, ref backends.Ref) error {
	for {
		f, err := b.locate(ctx, ref)
		var c *cloning
		switch {
		case errors.Is(err, errAbsent):
			return nil
		case errors.As(err, &c):
			if err := b.abandonClone(ctx, ref, c); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if f.conf["protection"] == "1" {
			return backends.Errorf(backends.ErrConflict, "delete VM", "%s is protected: somebody wants to keep it; switch its protection off first, nothing was removed", f)
		}
		if f, err = b.off(ctx, f); err != nil {
			return err
		}
		if err := b.destroy(ctx, f); err != nil {
			return err
		}
	}
}

// off stops a VM that is to be destroyed.
func (b *Backend) off(ctx context.Context, f found) (found, error) {
	s, err := b.status(ctx, &f)
	if err != nil || s.Status == "stopped" {
		return f, err
	}
	return b.down(ctx, f, "vm.stop", b.api.Stop)
}

// destroy removes a VM that is stopped, with the disks that its configuration names.
func (b *Backend) destroy(ctx context.Context, f found) error {
	f, err := b.unlockedBut(ctx, f, hibernated) // reads once more whose it is
	if err != nil {
		return err
	}
	if err := backends.Step(ctx, "vm.destroy"); err != nil {
		return err
	}
	task, err := b.api.Destroy(ctx, f.vm.Node, f.vm.ID)
	var outcome pve.Outcome
	if err == nil {
		outcome, err = b.api.Follow(ctx, task)
	}
	var failed *pve.TaskError
	switch {
	case err == nil, pve.IsNoTask(err), pve.IsNoVM(err): // looked for again
	case errors.As(err, &failed) && strings.Contains(failed.Outcome.Text, "unable to find configuration file"):
	default:
		return classify("delete VM", err, "%s cannot be destroyed", f)
	}
	if outcome.Warned() {
		b.warned(ctx, "delete VM", f.vm.ID, outcome)
		return b.disksGone(ctx, f)
	}
	return nil
}

// disksGone looks for disks that a destroy has left behind with a warning, and removes
// them, unless somebody uses the VMID again: the disks may be his.
func (b *Backend) disksGone(ctx context.Context, f found) error {
	snap, err := b.inv.fresh(ctx)
	if err != nil {
		return classify("list resources", err, "the cluster's VMs cannot be listed")
	}
	if _, again := snap.vms[f.vm.ID]; again {
		b.log.WarnContext(ctx, "a VM was destroyed with warnings and its VMID is in use again; its disks are not looked for", "vmid", f.vm.ID)
		return nil
	}
	for _, key := range slices.Concat(disks(f.conf), unused(f.conf)) {
		volume := volumeOf(f.conf[key])
		storage := storageOf(volume)
		left, err := b.api.Volumes(ctx, f.vm.Node, storage, "images", f.vm.ID)
		if err != nil {
			return classify("delete disks", err, "%s was destroyed with warnings, and whether its disk %s is gone cannot be read", f, volume)
		}
		if !slices.ContainsFunc(left, func(v pve.Volume) bool { return v.ID == volume }) {
			continue
		}
		if err := backends.Step(ctx, "disk.delete"); err != nil {
			return err
		}
		if err := b.removeVolume(ctx, f.vm.Node, storage, volume); err != nil {
			return classify("delete disks", err, "%s was destroyed, but its disk %s is left; remove it by hand: `pvesm free %s` on node %s", f, volume, volume, f.vm.Node)
		}
	}
	return nil
}

// unused are the keys of disks that were detached from a VM and belong to it still.
func unused(conf pve.VMConfig) []string {
	var out []string
	for key := range conf {
		if strings.HasPrefix(key, "unused") {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

func (b *Backend) removeVolume(ctx context.Context, node, storage, volume string) error {
	task, err := b.api.RemoveVolume(ctx, node, storage, volume)
	if err != nil {
		return err
	}
	_, err = b.api.Follow(ctx, task)
	if pve.IsNoTask(err) {
		return nil
	}
	return err
}

// abandonClone ends a clone that runs; PVE removes what it has made then.
func (b *Backend) abandonClone(ctx context.Context, ref backends.Ref, c *cloning) error {
	task := c.record.Task
	if task == "" {
		var err error
		if task, err = b.cloneTo(ctx, c.vm.ID); err != nil {
			return err
		}
	}
	if task != "" {
		if err := backends.Step(ctx, "clone.stop"); err != nil {
			return err
		}
		if err := b.api.StopTask(ctx, task); err != nil {
			return classify("stop clone", err, "the clone to VM %d cannot be stopped", c.vm.ID)
		}
		if _, err := b.api.Follow(ctx, task); err != nil {
			var failed *pve.TaskError
			if !errors.As(err, &failed) && !pve.IsNoTask(err) {
				return classify("stop clone", err, "the clone to VM %d was stopped and cannot be followed", c.vm.ID)
			}
		}
		c.record.Task = ""
	}
	return b.awaitClone(ctx, ref, &cloning{vm: c.vm, record: c.record}, func(backends.Progress) {})
}

// cloneTo finds the running clone to a VMID by what its log says first; empty: none shows.
func (b *Backend) cloneTo(ctx context.Context, vmid int) (pve.UPID, error) {
	tasks, err := b.ownClones(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range tasks {
		lines, err := b.api.TaskLog(ctx, t)
		if err != nil {
			continue // its lock is waited for instead
		}
		for _, l := range lines {
			if strings.HasPrefix(l, "creating a clone of VM ") && strings.HasSuffix(l, fmt.Sprintf(" with ID %d", vmid)) {
				return t, nil
			}
		}
	}
	return "", nil
}

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
