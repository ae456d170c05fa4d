package proxmox

import (
	"context"
	"errors"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// create clones a VM for a job that has none.
func (b *Backend) create(ctx context.Context, j *job) (found, error) {
	j.step("choosing node")
	snap, err := b.inv.fresh(ctx)
	if err != nil {
		return found{}, classify("list resources", err, "the cluster's resources cannot be listed")
	}
	templates, err := b.templates(ctx, snap, j.Image)
	if err != nil {
		return found{}, err
	}
	if templates, err = largeEnough(templates, j); err != nil {
		return found{}, err
	}
	if err := b.sees(snap); err != nil {
		return found{}, err
	}
	var p place
	err = b.promised.choose(j.UID, time.Now(), func(others []promise) (promise, error) {
		if err := b.slotLeft(snap, others); err != nil {
			return promise{}, err
		}
		others = slices.DeleteFunc(others, func(p promise) bool {
			v, ok := b.listed(snap, p)
			return ok && v.Memory >= p.memory // counted already
		})
		p, err = b.rules().choose(snap, templates, j.need, others)
		return promise{node: p.node, storage: p.storage, cpus: j.need.cpus, memory: j.need.memory, disk: max(j.need.disk, p.template.size)}, err
	})
	if err != nil {
		return found{}, err
	}
	made := false
	defer func() { b.promised.settle(j.UID, made, time.Now()) }()

	j.step("waiting for a clone slot")
	leave, err := b.enter(ctx, p.template.vm.ID)
	if err != nil {
		return found{}, classify("wait for clone slot", err, "%d clones of template %d run already", b.conf.ClonesPerTemplate, p.template.vm.ID)
	}
	defer leave()
	f, err := b.clone(ctx, j, snap, p)
	made = err == nil
	return f, err
}

// largeEnough drops templates whose disk is larger than the one asked for: disks cannot
// shrink.
func largeEnough(all []template, j *job) ([]template, error) {
	var out []template
	for _, t := range all {
		if j.need.disk == 0 || t.size <= j.need.disk {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, backends.Errorf(backends.ErrPermanent, "check disk",
			"proxy %s: a disk of %d GiB is smaller than that of template %d, %d MiB, and disks cannot shrink",
			j.Proxy, j.DiskGiB, all[0].vm.ID, all[0].size/mib)
	}
	return out, nil
}

// sees refuses to choose between nodes that do not exist.
func (b *Backend) sees(snap *snapshot) error {
	for _, n := range snap.Nodes {
		if b.allowed(n.Name) {
			return nil
		}
	}
	return backends.Errorf(backends.ErrHostFault, "choose node", "the cluster has none of the configured nodes %v, or the token may not see them (Sys.Audit on /nodes)", b.conf.Nodes)
}

// listed is the VM of a promise, where it was made and the listing shows it as ours.
func (b *Backend) listed(snap *snapshot, p promise) (pve.VM, bool) {
	v, ok := snap.vms[b.marks.vmid(p.uid)]
	return v, ok && !p.until.IsZero() && b.tagged(v)
}

// slotLeft holds to the configured number of proxies.
func (b *Backend) slotLeft(snap *snapshot, promised []promise) error {
	most := b.host.Limits.Slots
	if most <= 0 {
		return nil
	}
	n := b.count(snap)
	for _, p := range promised {
		if _, ok := b.listed(snap, p); !ok {
			n++
		}
	}
	if n >= most {
		return backends.Errorf(backends.ErrNoCapacity, "choose node", "%d of %d proxies are here already", n, most)
	}
	return nil
}

// enter takes one of a template's clone slots.
func (b *Backend) enter(ctx context.Context, template int) (leave func(), err error) {
	b.mu.Lock()
	slots, ok := b.slots[template]
	if !ok {
		slots = make(chan struct{}, b.conf.ClonesPerTemplate)
		b.slots[template] = slots
	}
	b.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// clone asks for a clone under the first VMID that is free, follows it to its end, and
// verifies whose the VM is.
func (b *Backend) clone(ctx context.Context, j *job, snap *snapshot, p place) (found, error) {
	m := mark{Port: j.Port, Spec: j.spec, Mark: backends.Mark{Installation: b.owner.Installation, HostID: b.owner.HostID,
		Proxy: j.Proxy, UID: j.UID, CreatedAt: time.Now().UTC().Truncate(time.Second)}}
	if m.Port == 0 {
		m.Port = DefaultPort
	}
	for _, id := range vmids(j.UID, b.conf.VMIDRange) {
		if _, taken := snap.vms[id]; taken {
			continue
		}
		rec := record{Proxy: j.Proxy, UID: j.UID, VMID: id, Template: p.template.vm.ID, CreatedAt: m.CreatedAt}
		if err := b.note(ctx, "record.write", rec); err != nil {
			return found{}, err
		}
		j.step("cloning template")
		if err := backends.Step(ctx, "vm.clone"); err != nil {
			return found{}, err
		}
		task, err := b.api.Clone(ctx, p.template.vm.Node, p.template.vm.ID, pve.CloneOptions{ID: id, Name: backends.InstanceName(j.UID),
			Description: describe(m, ""), Target: p.node, Full: b.conf.CloneMode == "full", Storage: b.conf.Storage})
		if pve.IsTaken(err) {
			continue // somebody was faster, or it is another's whom the token may not see
		}
		if err != nil {
			var answer *pve.Error
			if errors.As(err, &answer) && !pve.IsPassedOn(err) { // it was refused: nothing is made
				if lost := b.forget(ctx, j.UID); lost != nil {
					return found{}, lost
				}
			}
			return found{}, classify("clone VM", err, "proxy %s: template %d cannot be cloned to VM %d on node %s", j.Proxy, p.template.vm.ID, id, p.node)
		}
		rec.Task = task
		if err := b.note(ctx, "record.task", rec); err != nil {
			return found{}, err
		}
		if err := b.followClone(ctx, j.Ref, rec, j.report); err != nil {
			return found{}, err
		}
		f, err := b.locate(ctx, j.Ref)
		var c *cloning
		switch {
		case errors.Is(err, errAbsent), errors.As(err, &c):
			return found{}, backends.Errorf(backends.ErrTransient, "verify clone", "proxy %s: the clone to VM %d ended, and the VM is not there as it should be", j.Proxy, id)
		case err != nil:
			return found{}, err
		}
		return f, b.forget(ctx, j.UID)
	}
	if err := b.forget(ctx, j.UID); err != nil {
		return found{}, err
	}
	return found{}, backends.Errorf(backends.ErrNoCapacity, "choose VMID", "proxy %s: %d VMIDs between %d and %d were tried and are all taken; widen vmidRange",
		j.Proxy, probes, b.conf.VMIDRange.Min, b.conf.VMIDRange.Max)
}

func (b *Backend) note(ctx context.Context, label string, rec record) error {
	if err := backends.Step(ctx, label); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := b.records.put(rec); err != nil {
		return backends.Wrap(backends.ErrHostFault, "write record", err, "the record of a clone cannot be written to %s", b.records.dir)
	}
	return nil
}
