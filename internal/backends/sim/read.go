package sim

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"time"

	"proxyfleet/internal/backends"
)

// statusAt works out what an instance does now, its script included.
func statusAt(o object, now time.Time) backends.Status {
	if o.Status == backends.StatusRunning && o.Script.CrashAfter > 0 && now.Sub(o.Started) >= o.Script.CrashAfter {
		return backends.StatusCrashed
	}
	return o.Status
}

func vanished(o object, now time.Time) bool {
	return o.Status == backends.StatusRunning && o.Script.VanishAfter > 0 && now.Sub(o.Started) >= o.Script.VanishAfter
}

func (b *Backend) instance(o object) backends.Instance {
	now := time.Now()
	i := backends.Instance{Mark: o.Mark, ID: backends.InstanceName(o.Mark.UID), Status: statusAt(o, now), Port: o.Port, Generation: o.Generation}
	switch {
	case i.Status == backends.StatusCrashed:
		i.Reason, i.Message = "Crashed", "the simulated instance ended by itself"
	case i.Status == backends.StatusRunning && now.Sub(o.Started) >= o.Script.NoAddress:
		i.Addresses = []netip.Addr{b.address(o.Mark.UID)}
	}
	return i
}

// Get implements [backends.Backend].
func (b *Backend) Get(ctx context.Context, ref backends.Ref) (backends.Instance, error) {
	const op = "get"
	if err := ref.Validate(); err != nil {
		return backends.Instance{}, err
	}
	if err := b.world.enter(ctx, op); err != nil {
		return backends.Instance{}, err
	}
	o, found, err := b.own(op, ref, kindInstance)
	if err != nil {
		return backends.Instance{}, err
	}
	if !found {
		return backends.Instance{}, backends.Errorf(backends.ErrNotFound, op, "proxy %s (%s) is not here", ref.Proxy, ref.UID)
	}
	if err := b.scripted(ref, op, o.Script.GetError, o.Script.Times); err != nil {
		return backends.Instance{}, err
	}
	return b.instance(o), nil
}

// Delete implements [backends.Backend]. Its steps are "instance.delete", "disk.delete" and
// "done".
func (b *Backend) Delete(ctx context.Context, ref backends.Ref) error {
	const op = "delete"
	if err := ref.Validate(); err != nil {
		return err
	}
	if err := b.world.enter(ctx, op); err != nil {
		return err
	}
	// Both are read before anything is removed, so that a conflict removes nothing.
	o, defined, err := b.own(op, ref, kindInstance)
	if err != nil {
		return err
	}
	if _, _, err := b.own(op, ref, kindDisk); err != nil {
		return err
	}
	if defined {
		if err := b.scripted(ref, op, o.Script.DeleteError, o.Script.Times); err != nil {
			return err
		}
	}
	if err := sleep(ctx, o.Script.SlowDelete); err != nil {
		return err
	}
	b.unschedule(ref.UID)
	for _, kind := range kinds {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := backends.Step(ctx, kind+".delete"); err != nil {
			return err
		}
		k := key{kind, backends.InstanceName(ref.UID)}
		if err := b.world.store.remove(k); err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "cannot remove the %s %s; it is still there", k.Kind, k.Name)
		}
	}
	return backends.Step(ctx, "done")
}

// List implements [backends.Backend].
func (b *Backend) List(ctx context.Context) (backends.Listing, error) {
	if err := b.world.enter(ctx, "list"); err != nil {
		return backends.Listing{}, err
	}
	var l backends.Listing
	instances, unread, err := b.world.store.list(kindInstance)
	if err != nil {
		return l, unreadable("list", "the host", err)
	}
	disks, unreadDisks, err := b.world.store.list(kindDisk)
	if err != nil {
		return l, unreadable("list", "the host", err)
	}
	maps.Copy(unread, unreadDisks)
	for name, err := range unread {
		l.Unread = append(l.Unread, backends.Unread{What: name, Err: unreadable("list", name, err)})
	}
	now := time.Now()
	for name, o := range instances {
		switch {
		case !o.Mark.Owned(b.owner) || vanished(o, now):
		case o.Script.GetError != "" && errors.Is(b.peek(o), errScripted):
			l.Unread = append(l.Unread, backends.Unread{What: name, Err: errScripted})
		default:
			l.Instances = append(l.Instances, b.instance(o))
		}
	}
	for name, o := range disks {
		i, defined := instances[name]
		if _, broken := unread[name]; broken || !o.Mark.Owned(b.owner) {
			continue
		}
		if !defined || vanished(i, now) {
			l.Leftovers = append(l.Leftovers, backends.Leftover{Mark: o.Mark, Kind: kindDisk, Name: name})
		}
	}
	slices.SortFunc(l.Instances, func(x, y backends.Instance) int { return cmp.Compare(x.Mark.UID, y.Mark.UID) })
	slices.SortFunc(l.Leftovers, func(x, y backends.Leftover) int { return cmp.Compare(x.Name, y.Name) })
	return l, nil
}

var errScripted = errors.New("unread: the instance's script says so")

// peek tells whether Get would fail as scripted, without using the error up.
func (b *Backend) peek(o object) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o.Script.Times > 0 && b.failed[failure{o.Mark.UID, "get"}] >= o.Script.Times {
		return nil
	}
	return errScripted
}

// Offer implements [backends.Backend].
func (b *Backend) Offer(ctx context.Context) (backends.Offer, error) {
	if err := b.world.enter(ctx, "offer"); err != nil {
		return backends.Offer{}, err
	}
	o := backends.Offer{
		Images:       slices.Sorted(maps.Keys(b.host.Images)),
		DefaultImage: b.host.Defaults.Image, ImageURLs: b.host.AllowImageURLs,
		DefaultMachineType: b.host.Defaults.MachineType, DefaultDiskGiB: b.host.Defaults.DiskGiB,
		Capacity: backends.Capacity{VCPUs: -1, MemoryMiB: -1, DiskGiB: -1, Slots: -1},
	}
	if b.cfg.Slots > 0 {
		o.Capacity.Slots = b.cfg.Slots
	}
	for _, name := range slices.Sorted(maps.Keys(b.host.MachineTypes)) {
		m := b.host.MachineTypes[name]
		o.MachineTypes = append(o.MachineTypes, backends.Shape{Name: name, VCPUs: m.VCPUs, MemoryMiB: m.MemoryMiB})
	}
	return o, nil
}

// Check implements [backends.Backend].
func (b *Backend) Check(ctx context.Context) []backends.TargetHealth {
	verdict := func(code, message string) []backends.TargetHealth {
		return []backends.TargetHealth{{Target: "world", Code: code, Message: message}}
	}
	err := b.world.enter(ctx, "check")
	switch {
	case err == nil:
	case backends.Ended(err):
		return verdict(backends.CheckTimeout, "the simulated host does not answer")
	case backends.Class(err) == backends.ErrHostFault:
		return verdict(backends.CheckUnauthorized, err.Error())
	default:
		return verdict(backends.CheckUnreachable, err.Error())
	}
	if _, err := b.world.store.count(kindInstance); err != nil {
		return verdict(backends.CheckStorageNotFound, err.Error())
	}
	return verdict(backends.CheckOK, "")
}
