package proxmox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// found is a VM of ours: its name, mark and uid were read and agree.
type found struct {
	vm   pve.VM
	conf pve.VMConfig
	mark mark
}

func (f found) String() string { return fmt.Sprintf("VM %d on node %s", f.vm.ID, f.vm.Node) }

// ready reports that the VM was finished once and may be started.
func (f found) ready() bool { return f.mark.Generation > 0 }

// cloning is a VM whose clone has not ended: it shows no name and no mark, and is ours as
// far as can be known.
type cloning struct {
	vm     pve.VM
	record record // zero without one
}

func (c *cloning) Error() string {
	return fmt.Sprintf("VM %d on node %s is being cloned", c.vm.ID, c.vm.Node)
}

// errAbsent says that the cluster has no VM of a uid.
var errAbsent = errors.New("there is no such VM")

// locate finds the VM of ref. The error is errAbsent, a *cloning, ErrConflict for something
// in its place that is not ours, or says why it cannot be known.
func (b *Backend) locate(ctx context.Context, ref backends.Ref) (found, error) {
	snap, err := b.inv.fresh(ctx)
	if err != nil {
		return found{}, classify("list resources", err, "the cluster's VMs cannot be listed")
	}
	return b.locateIn(ctx, snap, ref)
}

func (b *Backend) locateIn(ctx context.Context, snap *snapshot, ref backends.Ref) (found, error) {
	rec, recorded, err := b.records.get(ref.UID)
	if err != nil {
		return found{}, err
	}
	var ours []found
	var renamed, nameless *pve.VM
	for _, vm := range b.candidates(snap, ref.UID, rec) {
		vm, conf, err := b.configOf(ctx, vm)
		switch {
		case errors.Is(err, errAbsent):
			continue
		case err != nil:
			return found{}, err
		case conf["name"] == "" && isMaking(conf["lock"]):
			if recorded && rec.VMID == vm.ID {
				return found{}, &cloning{vm: vm, record: rec}
			}
			nameless = &vm
			continue
		}
		m, marked := parseMark(conf["description"])
		if conf["name"] != backends.InstanceName(ref.UID) {
			if marked && m.is(ref, b.owner) {
				renamed = &vm
			}
			continue
		}
		if !marked || !m.is(ref, b.owner) {
			return found{}, b.notOurs(vm, m, marked, ref)
		}
		ours = append(ours, found{vm: vm, conf: conf, mark: m})
	}
	switch {
	case len(ours) > 1:
		return found{}, backends.Errorf(backends.ErrConflict, "find VM",
			"%s and %s both are named %s and carry the mark of proxy %s; both are kept, remove or rename one by hand",
			ours[0], ours[1], backends.InstanceName(ref.UID), ref.Proxy)
	case len(ours) == 1:
		b.marks.put(ours[0].vm, ours[0].conf, time.Now())
		return ours[0], nil
	case renamed != nil:
		return found{}, backends.Errorf(backends.ErrConflict, "find VM",
			"VM %d on node %s carries the mark of proxy %s, but is not named %s; it is kept as it is: give it its name back, or take the mark out of its notes",
			renamed.ID, renamed.Node, ref.Proxy, backends.InstanceName(ref.UID))
	case nameless != nil:
		own, err := b.ownCloneRuns(ctx)
		if err != nil {
			return found{}, err
		}
		if own {
			return found{}, &cloning{vm: *nameless}
		}
	}
	if err := b.maySee(ctx, vmid(ref.UID, 0, b.conf.VMIDRange)); err != nil {
		return found{}, err
	}
	return found{}, errAbsent
}

// maySee makes sure that a VM which is not listed is not there: of what a token may not
// audit PVE lists nothing, and says nothing.
func (b *Backend) maySee(ctx context.Context, id int) error {
	path := fmt.Sprintf("/vms/%d", id)
	may, err := b.api.Permissions(ctx, path)
	if err != nil {
		return classify("read permissions", err, "whether the token may see VM %d is not known", id)
	}
	if !may["VM.Audit"] {
		return backends.Errorf(backends.ErrHostFault, "find VM", "the token lacks VM.Audit on %s: what VMs there are cannot be seen", path)
	}
	return nil
}

// candidates are the VMs that may be ref's: by name, by the VMIDs that follow from the uid,
// by record. Those whose name is known to be another's are left out.
func (b *Backend) candidates(snap *snapshot, uid string, rec record) []pve.VM {
	name, probed, known := backends.InstanceName(uid), vmids(uid, b.conf.VMIDRange), b.marks.vmid(uid)
	var out []pve.VM
	for _, v := range snap.VMs {
		if v.Type != "qemu" {
			continue
		}
		probe := slices.Contains(probed, v.ID)
		// The listing may still show the name of another VM that had this VMID before.
		sure := v.Name == name || v.ID == rec.VMID || v.ID == known
		if sure || probe && (v.Name == "" || slices.Contains(v.Tags, b.ownerTag)) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(x, y pve.VM) int { return x.ID - y.ID })
	return out
}

// isMaking reports a lock under which a VM has no configuration yet.
func isMaking(lock string) bool { return lock == "clone" || lock == "create" }

// configOf reads a VM's configuration where the VM is now: it may have migrated since the
// listing. errAbsent says that the cluster has it no more.
func (b *Backend) configOf(ctx context.Context, vm pve.VM) (pve.VM, pve.VMConfig, error) {
	const moves = 3 // while it is looked for
	for range moves {
		conf, err := b.api.Config(ctx, vm.Node, vm.ID, false)
		if err == nil {
			return vm, conf, nil
		}
		if !pve.IsNoVM(err) {
			return vm, nil, b.unreadable(ctx, vm, err)
		}
		snap, err := b.inv.fresh(ctx)
		if err != nil {
			return vm, nil, classify("list resources", err, "the cluster's VMs cannot be listed")
		}
		now, ok := snap.vms[vm.ID]
		if !ok {
			return vm, nil, errAbsent
		}
		vm = now
	}
	return vm, nil, backends.Errorf(backends.ErrTransient, "read VM",
		"VM %d is listed on node %s and is not there; it may be migrating, and is looked for again", vm.ID, vm.Node)
}

// unreadable says why a VM cannot be read: its node is away more often than anything else.
func (b *Backend) unreadable(ctx context.Context, vm pve.VM, err error) error {
	if pve.IsPassedOn(err) || pve.IsNoNode(err) {
		if nodes, lost := b.api.Nodes(ctx); lost == nil {
			online, known := nodes[vm.Node]
			switch {
			case !known:
				return backends.Wrap(backends.ErrTransient, "read VM", err, "VM %d: the cluster has no node named %s any more", vm.ID, vm.Node)
			case !online:
				return backends.Wrap(backends.ErrTransient, "read VM", err,
					"VM %d is on node %s, which is offline; what the VM does is not known", vm.ID, vm.Node)
			}
		}
	}
	return classify("read VM", err, "the configuration of VM %d on node %s cannot be read", vm.ID, vm.Node)
}

func (b *Backend) notOurs(vm pve.VM, m mark, marked bool, ref backends.Ref) error {
	whose := "and has no mark of ours"
	if marked {
		whose = "and carries the mark of " + m.String()
	}
	return backends.Errorf(backends.ErrConflict, "find VM",
		"VM %d on node %s is named %s, as the one of proxy %s would be, %s; it is left alone: rename or remove it by hand",
		vm.ID, vm.Node, backends.InstanceName(ref.UID), ref.Proxy, whose)
}

// ownCloneRuns reports whether a clone runs that this token has started.
func (b *Backend) ownCloneRuns(ctx context.Context) (bool, error) {
	tasks, err := b.ownClones(ctx)
	return len(tasks) > 0, err
}

func (b *Backend) ownClones(ctx context.Context) ([]pve.UPID, error) {
	id, err := b.api.TokenID()
	if err != nil {
		return nil, classify("read token", err, "the token cannot be read")
	}
	tasks, err := b.api.RunningTasks(ctx, "qmclone")
	if err != nil {
		return nil, classify("list tasks", err, "running clones cannot be listed")
	}
	return slices.DeleteFunc(tasks, func(t pve.UPID) bool { return t.User() != id }), nil
}

// verify reads a VM of ours again, right before it is changed: between two looks somebody
// may have removed it and used its VMID.
func (b *Backend) verify(ctx context.Context, f found) (found, error) {
	ref := backends.Ref{Proxy: f.mark.Proxy, UID: f.mark.UID}
	vm, conf, err := b.configOf(ctx, f.vm)
	if errors.Is(err, errAbsent) {
		return found{}, backends.Errorf(backends.ErrTransient, "verify VM", "%s was removed meanwhile", f)
	}
	if err != nil {
		return found{}, err
	}
	m, marked := parseMark(conf["description"])
	if !marked || !m.is(ref, b.owner) || conf["name"] != backends.InstanceName(ref.UID) {
		return found{}, backends.Errorf(backends.ErrConflict, "verify VM",
			"%s is named %q now and is not the one of proxy %s any more; it is left alone", f, conf["name"], ref.Proxy)
	}
	return found{vm: vm, conf: conf, mark: m}, nil
}
