package proxmox

import (
	"context"
	"errors"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// followClone waits for the end of a clone's task. A clone that failed has removed its VM
// itself.
func (b *Backend) followClone(ctx context.Context, ref backends.Ref, rec record, report func(backends.Progress)) error {
	outcome, err := b.api.FollowEach(ctx, rec.Task, func() {
		if percent, err := b.api.TaskPercent(ctx, rec.Task); err == nil {
			report(backends.Progress{Step: "cloning template", Percent: percent})
		}
	})
	var failed *pve.TaskError
	switch {
	case pve.IsNoTask(err):
		return nil // long over; what is there tells how it ended
	case errors.As(err, &failed):
		if lost := b.forget(ctx, ref.UID); lost != nil {
			return lost
		}
		return classify("clone VM", err, "proxy %s: the clone of template %d to VM %d failed; nothing of it is kept", ref.Proxy, rec.Template, rec.VMID)
	case err != nil:
		return classify("clone VM", err, "proxy %s: the clone of template %d to VM %d cannot be followed; it may go on, and is looked for again", ref.Proxy, rec.Template, rec.VMID)
	}
	b.warned(ctx, "clone VM", rec.VMID, outcome)
	return nil
}

// warned logs the warnings of a task that succeeded. What matters of its work is read back
// anyway.
func (b *Backend) warned(ctx context.Context, op string, vmid int, o pve.Outcome) {
	if o.Warned() {
		b.log.WarnContext(ctx, "a task ended with warnings", "op", op, "vmid", vmid, "outcome", o.Text, "warnings", o.Log)
	}
}

// strandedAfter is how often in a row no clone may be seen running while a VM has the lock
// of one. A task shows a moment after its lock does.
const strandedAfter = 3

// awaitClone waits until a VM is no longer being cloned. With a record its task is followed;
// without, its lock is watched.
func (b *Backend) awaitClone(ctx context.Context, ref backends.Ref, c *cloning, report func(backends.Progress)) error {
	if c.record.Task != "" {
		if err := b.followClone(ctx, ref, c.record, report); err != nil {
			return err
		}
	}
	for idle := 0; ; {
		snap, err := b.inv.fresh(ctx)
		if err != nil {
			return classify("list resources", err, "the cluster's VMs cannot be listed")
		}
		vm, listed := snap.vms[c.vm.ID]
		if !listed || !isMaking(vm.Lock) {
			return nil
		}
		running, err := b.ownCloneRuns(ctx)
		if err != nil {
			return err
		}
		if idle++; running {
			idle = 0
		}
		if idle >= strandedAfter {
			return backends.Errorf(backends.ErrTransient, "wait for lock",
				"VM %d on node %s has the lock %q of a clone that no longer runs, and a token cannot take it off; "+
					"if the VM is proxyfleet's (proxy %s), run `qm unlock %d && qm destroy %d` on node %s",
				vm.ID, vm.Node, vm.Lock, ref.Proxy, vm.ID, vm.ID, vm.Node)
		}
		if err := sleep(ctx, b.poll); err != nil {
			return classify("wait for clone", err, "VM %d on node %s is still being cloned", vm.ID, vm.Node)
		}
	}
}

// abandonClone ends a clone that runs; PVE removes what it has made then. Only a task that
// is on record is stopped: any other may be that of another agent that uses the same token,
// so its end is waited for, when the VM shows whose it is.
func (b *Backend) abandonClone(ctx context.Context, ref backends.Ref, c *cloning) error {
	rec := c.record
	if rec.Task != "" {
		if err := backends.Step(ctx, "clone.stop"); err != nil {
			return err
		}
		if err := b.api.StopTask(ctx, rec.Task); err != nil {
			return classify("stop clone", err, "the clone to VM %d cannot be stopped", c.vm.ID)
		}
		var failed *pve.TaskError
		if _, err := b.api.Follow(ctx, rec.Task); err != nil && !errors.As(err, &failed) && !pve.IsNoTask(err) {
			return classify("stop clone", err, "the clone to VM %d was stopped and cannot be followed", c.vm.ID)
		}
		rec.Task = ""
	}
	return b.awaitClone(ctx, ref, &cloning{vm: c.vm, record: rec}, func(backends.Progress) {})
}
