package proxmox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// recentEnough is how old a listing may be for a Get that finds its VM in it. Existence is
// confirmed by reading the VM; absence always by a listing made after the call.
const recentEnough = 2 * time.Second

// Get implements [backends.Backend]. It makes at most four requests, the first of which is
// shared.
func (b *Backend) Get(ctx context.Context, ref backends.Ref) (backends.Instance, error) {
	if err := ref.Validate(); err != nil {
		return backends.Instance{}, err
	}
	snap, err := b.inv.recent(ctx, recentEnough)
	if err != nil {
		return backends.Instance{}, classify("list resources", err, "the cluster's VMs cannot be listed")
	}
	f, err := b.locateIn(ctx, snap, ref)
	if errors.Is(err, errAbsent) {
		f, err = b.locate(ctx, ref)
	}
	var c *cloning
	switch {
	case errors.Is(err, errAbsent):
		return backends.Instance{}, backends.Errorf(backends.ErrNotFound, "get", "proxy %s has no VM (uid %s)", ref.Proxy, ref.UID)
	case errors.As(err, &c):
		if c.record.UID == "" {
			return backends.Instance{}, backends.Errorf(backends.ErrTransient, "get", "VM %d on node %s, which may be proxy %s's, is being cloned and has no name yet",
				c.vm.ID, c.vm.Node, ref.Proxy)
		}
		return b.unborn(c), nil
	case err != nil:
		return backends.Instance{}, err
	}
	return b.instance(ctx, f, true)
}

// unborn is a VM that is being cloned: its mark is what the record says.
func (b *Backend) unborn(c *cloning) backends.Instance {
	return backends.Instance{
		Mark: backends.Mark{Installation: b.owner.Installation, HostID: b.owner.HostID, Proxy: c.record.Proxy, UID: c.record.UID, CreatedAt: c.record.CreatedAt},
		ID:   instanceID(c.vm.ID, c.record.UID), Status: backends.StatusBroken, Reason: "Cloning",
		Message: c.Error(), Port: DefaultPort, AddressUnread: true,
	}
}

func instanceID(vmid int, uid string) string {
	return fmt.Sprintf("%d/%s", vmid, backends.InstanceName(uid))
}

// instance reads what a VM of ours does, and its addresses where it runs and they are
// asked for.
func (b *Backend) instance(ctx context.Context, f found, addresses bool) (backends.Instance, error) {
	s, err := b.status(ctx, &f)
	if err != nil {
		return backends.Instance{}, err
	}
	i := describeVM(f.mark, f.vm, s)
	if i.Status != backends.StatusRunning {
		return i, nil
	}
	i.AddressUnread = true
	if !addresses {
		return i, nil
	}
	found, err := b.api.Interfaces(ctx, f.vm.Node, f.vm.ID)
	switch {
	case err == nil:
		i.AddressUnread = false
		i.Addresses = onCard(found, netMAC(f.conf["net0"]), b.conf.IPv6)
		if len(i.Addresses) == 0 {
			add(&i, "the guest agent answers and has no address on the proxy's card yet")
		}
	case ctx.Err() != nil:
		return backends.Instance{}, classify("read addresses", err, "%s", f)
	case pve.IsAgentAbsent(err):
		add(&i, "the guest agent does not answer (yet)")
	case pve.IsAgentOff(err):
		i.Reason = "AgentOff"
		add(&i, "the VM was started without a channel for its guest agent; it is restarted when it is next brought to running")
	default:
		add(&i, "the guest agent cannot be asked: "+err.Error())
	}
	return i, nil
}

// add appends to what people are told.
func add(i *backends.Instance, text string) {
	if i.Message != "" {
		text = i.Message + "; " + text
	}
	i.Message = text
}

// describeVM says what a VM does in the contract's words.
func describeVM(m mark, vm pve.VM, s pve.VMStatus) backends.Instance {
	i := backends.Instance{Mark: m.Mark, ID: instanceID(vm.ID, m.UID), Port: m.Port, Generation: m.Generation}
	i.Status, i.Reason, i.Message = condition(s)
	switch {
	case m.Generation == 0:
		i.Status, i.Reason, i.Message = backends.StatusBroken, "HalfMade", "the VM was cloned and not finished"
	case s.Lock != "" && i.Reason == "":
		i.Reason, i.Message = "Locked", fmt.Sprintf("the VM has the lock %q", s.Lock)
	}
	return i
}

// condition maps what PVE and QEMU say. A VM that hibernates is stopped: it takes no memory
// and answers nobody; starting it resumes it.
func condition(s pve.VMStatus) (status backends.Status, reason, message string) {
	switch {
	case s.Status == "stopped" && s.Lock == hibernated:
		return backends.StatusStopped, "Hibernated", "the VM's memory was written to disk; it resumes when it is started"
	case s.Lock == "suspending":
		return backends.StatusPaused, "Hibernating", "the VM's memory is being written to disk"
	case s.Status == "stopped":
		return backends.StatusStopped, "", ""
	case s.Status != "running":
		return backends.StatusPaused, "Unknown", "Proxmox VE says " + s.Status
	}
	switch s.QMP {
	case "running", "":
		return backends.StatusRunning, "", ""
	case "prelaunch", "inmigrate", "postmigrate", "finish-migrate":
		return backends.StatusStarting, "Migrating", "QEMU says " + s.QMP
	case "paused":
		return backends.StatusPaused, "Paused", "somebody has paused the VM, or a backup or migration has"
	case "suspended":
		return backends.StatusPaused, "Suspended", "the guest has suspended itself"
	case "io-error":
		return backends.StatusPaused, "IOError", "an error of the disk has paused the VM; its storage may be full or away"
	case "internal-error", "guest-panicked":
		return backends.StatusCrashed, "GuestPanicked", "QEMU says " + s.QMP
	case "shutdown":
		return backends.StatusCrashed, "ShutDown", "the guest has shut down and QEMU has not ended"
	}
	return backends.StatusPaused, "Unknown", "QEMU says " + s.QMP
}
