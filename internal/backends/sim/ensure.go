package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"time"

	"proxyfleet/internal/backends"
)

// Ensure implements [backends.Backend]. Its steps are "disk.create", "instance.define",
// "instance.update", "instance.start", "instance.stop" and "done".
func (b *Backend) Ensure(ctx context.Context, req backends.Request, report func(backends.Progress)) (backends.Instance, error) {
	const op = "ensure"
	if err := req.Validate(); err != nil {
		return backends.Instance{}, err
	}
	s, err := parseScript(req.UserData)
	if err != nil {
		return backends.Instance{}, backends.Wrap(backends.ErrPermanent, op, err, "proxy %s has a script that cannot be read", req.Proxy)
	}
	if err := b.world.enter(ctx, op); err != nil {
		return backends.Instance{}, err
	}
	if err := b.scripted(req.Ref, op, s.EnsureError, s.Times); err != nil {
		return backends.Instance{}, err
	}
	_, hasDisk, err := b.own(op, req.Ref, kindDisk)
	if err != nil {
		return backends.Instance{}, err
	}
	o, defined, err := b.own(op, req.Ref, kindInstance)
	if err != nil {
		return backends.Instance{}, err
	}
	fixed := digest(req)
	if defined && o.Fixed != fixed {
		return backends.Instance{}, backends.Errorf(backends.ErrPermanent, op,
			"proxy %s exists with another port, image, machine type, disk or user-data; those need a new uid", req.Proxy)
	}
	if !hasDisk {
		if err := b.createDisk(ctx, req); err != nil {
			return backends.Instance{}, err
		}
	}
	if !defined {
		if err := takeTime(ctx, s, report); err != nil {
			return backends.Instance{}, err
		}
		o = object{Mark: b.mark(req.Ref), Fixed: fixed, Status: backends.StatusStopped, Generation: req.Generation, Port: b.port(req), Script: s}
		if err := b.write(ctx, "instance.define", req.Ref, o); err != nil {
			return backends.Instance{}, err
		}
	}
	if o, err = b.converge(ctx, req, o, report); err != nil {
		return backends.Instance{}, err
	}
	return b.instance(o), backends.Step(ctx, "done")
}

// createDisk takes the room that an instance needs, or says that there is none.
func (b *Backend) createDisk(ctx context.Context, req backends.Request) error {
	const op = "create disk"
	b.world.alloc.Lock()
	defer b.world.alloc.Unlock()
	if req.DiskGiB > b.cfg.DiskGiB {
		return backends.Errorf(backends.ErrNoCapacity, op, "proxy %s asks for %d GiB, the host has %d", req.Proxy, req.DiskGiB, b.cfg.DiskGiB)
	}
	if b.cfg.Slots > 0 {
		n, err := b.world.store.count(kindDisk)
		if err != nil {
			return unreadable(op, "the host", err)
		}
		if n >= b.cfg.Slots {
			return backends.Errorf(backends.ErrNoCapacity, op, "all %d slots are taken", b.cfg.Slots)
		}
	}
	if err := backends.Step(ctx, "disk.create"); err != nil {
		return err
	}
	name := key{kindDisk, backends.InstanceName(req.UID)}
	if err := b.world.store.put(name, object{Mark: b.mark(req.Ref)}); err != nil {
		return backends.Wrap(backends.ErrTransient, op, err, "cannot write %s", name.Name)
	}
	return nil
}

// converge brings a defined instance to the request's generation and desired.
func (b *Backend) converge(ctx context.Context, req backends.Request, o object, report func(backends.Progress)) (object, error) {
	if o.Generation != req.Generation {
		o.Generation = req.Generation
		if err := b.write(ctx, "instance.update", req.Ref, o); err != nil {
			return o, err
		}
	}
	running := statusAt(o, time.Now()) == backends.StatusRunning
	switch {
	case req.Desired == backends.Running && !running:
		report(backends.Progress{Step: "starting"})
		o.Status, o.Started = backends.StatusRunning, time.Now().UTC()
		if err := b.write(ctx, "instance.start", req.Ref, o); err != nil {
			return o, err
		}
		b.schedule(req.UID, o.Script)
	case req.Desired == backends.Stopped && o.Status != backends.StatusStopped:
		report(backends.Progress{Step: "stopping"})
		o.Status = backends.StatusStopped
		if err := b.write(ctx, "instance.stop", req.Ref, o); err != nil {
			return o, err
		}
		b.unschedule(req.UID)
	}
	return o, nil
}

func (b *Backend) write(ctx context.Context, label string, ref backends.Ref, o object) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := backends.Step(ctx, label); err != nil {
		return err
	}
	name := backends.InstanceName(ref.UID)
	if err := b.world.store.put(key{kindInstance, name}, o); err != nil {
		return backends.Wrap(backends.ErrTransient, label, err, "cannot write %s", name)
	}
	return nil
}

// own reads an object and refuses one that is not ours and this uid's.
func (b *Backend) own(op string, ref backends.Ref, kind string) (object, bool, error) {
	name := backends.InstanceName(ref.UID)
	o, found, err := b.world.store.get(key{kind, name})
	if err != nil {
		return object{}, false, unreadable(op, name, err)
	}
	if found && (!o.Mark.Owned(b.owner) || o.Mark.UID != ref.UID) {
		return object{}, false, backends.Errorf(backends.ErrConflict, op, "the %s %s is not ours; it was left as it is", kind, name)
	}
	if found && kind == kindInstance && vanished(o, time.Now()) {
		return object{}, false, nil
	}
	return o, found, nil
}

func (b *Backend) mark(ref backends.Ref) backends.Mark {
	return backends.Mark{Installation: b.owner.Installation, HostID: b.owner.HostID,
		Proxy: ref.Proxy, UID: ref.UID, CreatedAt: time.Now().UTC().Truncate(time.Second)}
}

// takeTime is the slow part of a scripted Ensure.
func takeTime(ctx context.Context, s script, report func(backends.Progress)) error {
	steps := s.Steps
	if steps == 0 {
		steps = 4
	}
	for i := range steps {
		report(backends.Progress{Step: fmt.Sprintf("simulating step %d of %d", i+1, steps), Percent: (i + 1) * 100 / steps})
		if err := sleep(ctx, s.Slow/time.Duration(steps)); err != nil {
			return err
		}
	}
	return nil
}

// digest covers what cannot change in place.
func digest(req backends.Request) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%q\n%q\n%d\n%q", req.Port, req.Image, req.MachineType, req.DiskGiB, req.UserData))
	return hex.EncodeToString(sum[:8])
}

func (b *Backend) port(req backends.Request) int {
	const first, ports = 20000, 40000
	switch {
	case req.Port != 0:
		return req.Port
	case b.cfg.Port != 0:
		return b.cfg.Port
	}
	return first + int(hash(req.UID)>>32)%ports
}

// address gives a uid its place in the network.
func (b *Backend) address(uid string) netip.Addr {
	base := binary.BigEndian.Uint32(b.network.Addr().AsSlice())
	size := uint64(1) << (32 - b.network.Bits())
	var out [4]byte
	binary.BigEndian.PutUint32(out[:], base+uint32(hash(uid)%size))
	return netip.AddrFrom4(out)
}

func hash(uid string) uint64 {
	sum := sha256.Sum256([]byte(uid))
	return binary.BigEndian.Uint64(sum[:8])
}
