package proxmox

import (
	"context"
	"errors"
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
	// A start that was asked for before, and not waited for, may take effect at any moment.
	for starts := 0; ; {
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
		if err := b.removeStraySeeds(ctx, f); err != nil {
			return err
		}
		err = b.destroy(ctx, f)
		switch starts++; {
		case err != nil && (!pve.IsRunning(err) || starts > 3):
			return err
		case starts > 3:
			return backends.Errorf(backends.ErrTransient, "delete VM", "%s is still there after %d destroy tasks that succeeded", f, starts)
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
