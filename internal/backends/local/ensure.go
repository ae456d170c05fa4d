package local

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/passwd"
)

// Ensure implements [backends.Backend]. Its steps are "state.create", "state.desired",
// "lock.create", "config.write", "process.start", "process.reload", "process.stop",
// "state.update" and "done". A disk size is ignored, for a process has no disk.
func (b *Backend) Ensure(ctx context.Context, req backends.Request, report func(backends.Progress)) (backends.Instance, error) {
	const op = "ensure"
	if err := req.Validate(); err != nil {
		return backends.Instance{}, err
	}
	if req.Image != "" || req.MachineType != "" || len(req.UserData) > 0 {
		return backends.Instance{}, backends.Errorf(backends.ErrPermanent, op,
			"proxy %s asks for an image, a machine type or cloud-init, which a process does not have", req.Proxy)
	}
	if err := ctx.Err(); err != nil {
		return backends.Instance{}, err
	}
	p, f, err := b.own(op, req.Ref)
	if err != nil {
		return backends.Instance{}, err
	}
	s, err := b.claim(ctx, p, f, req)
	if err != nil {
		return backends.Instance{}, err
	}
	if s.Desired != req.Desired {
		s.Desired = req.Desired
		if err := b.write(ctx, "state.desired", p, extState, s); err != nil {
			return backends.Instance{}, err
		}
	}
	if !f.lock {
		if err := b.write(ctx, "lock.create", p, extLock, lockFile{Mark: s.Mark}); err != nil {
			return backends.Instance{}, err
		}
	}
	digest, err := b.configure(ctx, p, s, req)
	if err != nil {
		return backends.Instance{}, err
	}
	if req.Desired == backends.Running {
		report(backends.Progress{Step: "starting process"})
		err = b.start(ctx, p, req.Ref, digest)
	} else {
		report(backends.Progress{Step: "stopping process"})
		err = b.stop(ctx, p, req.Ref)
	}
	if err != nil {
		return backends.Instance{}, err
	}
	if s.Generation != req.Generation {
		s.Generation = req.Generation
		if err := b.write(ctx, "state.update", p, extState, s); err != nil {
			return backends.Instance{}, err
		}
	}
	i, err := b.instance(p, s)
	if err != nil {
		return backends.Instance{}, backends.Wrap(backends.ErrTransient, op, err, "cannot tell whether proxy %s runs", req.Proxy)
	}
	return i, backends.Step(ctx, "done")
}

// write replaces one file as a labelled step.
func (b *Backend) write(ctx context.Context, label string, p paths, ext string, v any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := backends.Step(ctx, label); err != nil {
		return err
	}
	return wrapDisk(label, put(p.file(ext), v), p.file(ext))
}

// claim returns the state of a uid, making it where it is missing: that is what reserves
// the address and the port.
func (b *Backend) claim(ctx context.Context, p paths, f found, req backends.Request) (state, error) {
	if f.state != nil {
		if req.Port != 0 && req.Port != f.state.Port {
			return state{}, backends.Errorf(backends.ErrPermanent, "ensure", "proxy %s listens on port %d; another port needs a new uid", req.Proxy, f.state.Port)
		}
		return *f.state, nil
	}
	b.alloc.Lock()
	defer b.alloc.Unlock()
	at, err := b.place(ctx, p.name, req, f.conf)
	if err != nil {
		return state{}, err
	}
	s := state{Desired: req.Desired, Address: at.Addr(), Port: int(at.Port()), Mark: backends.Mark{
		Installation: b.owner.Installation, HostID: b.owner.HostID, Proxy: req.Proxy, UID: req.UID,
		CreatedAt: time.Now().UTC().Truncate(time.Second)}}
	return s, b.write(ctx, "state.create", p, extState, s)
}

// configure writes what the child reads, where it differs, and returns its digest.
func (b *Backend) configure(ctx context.Context, p paths, s state, req backends.Request) (digest string, err error) {
	const op = "write configuration"
	c := conf{Mark: s.Mark, Address: s.Address, Port: s.Port, Username: req.Access.Username, AllowFrom: req.Access.AllowFrom,
		Private: req.Access.Private, ConnectPorts: req.Access.ConnectPorts, Loopback: b.loopback,
		Sources: b.sourcesOf(s.Address), Limits: b.limits}
	if req.Access.Username != "" {
		if c.PasswordHash, err = passwd.Hash(req.UID, req.Access.Username, req.Access.Password); err != nil {
			return "", backends.Wrap(backends.ErrPermanent, op, err, "password of proxy %s", req.Proxy)
		}
	}
	_, digest, err = encode(c)
	if err != nil {
		return "", backends.Wrap(backends.ErrPermanent, op, err, "proxy %s", req.Proxy)
	}
	var old conf
	if _, err := get(p.file(extConf), &old); err == nil {
		if _, was, err := encode(old); err == nil && was == digest {
			return digest, nil
		}
	}
	return digest, b.write(ctx, "config.write", p, extConf, c)
}

// place finds an address and a port for a new uid. It is called with alloc held.
func (b *Backend) place(ctx context.Context, name string, req backends.Request, old *conf) (netip.AddrPort, error) {
	const op = "choose port"
	none := func(format string, args ...any) (netip.AddrPort, error) {
		return netip.AddrPort{}, backends.Errorf(backends.ErrNoCapacity, op, "proxy "+req.Proxy+": "+format, args...)
	}
	taken, load, n, err := b.taken(name)
	if err != nil {
		return netip.AddrPort{}, backends.Wrap(backends.ErrTransient, op, err, "cannot read which ports are taken")
	}
	if n >= b.slots() {
		return none("this host has all the proxies that it may, %d", n)
	}
	if old != nil && (req.Port == 0 || req.Port == old.Port) { // its state was lost, its place is still its own
		return netip.AddrPortFrom(old.Address, uint16(old.Port)), nil
	}
	first, last := b.first, b.last
	if req.Port != 0 {
		first, last = req.Port, req.Port
	}
	addresses := slices.Clone(b.addresses)
	slices.SortStableFunc(addresses, func(x, y netip.Addr) int { return cmp.Compare(load[x], load[y]) })
	for _, a := range addresses { // the next one may have free what others took of the first
		for port := first; port <= last; port++ {
			if err := ctx.Err(); err != nil {
				return netip.AddrPort{}, err
			}
			if at := netip.AddrPortFrom(a, uint16(port)); !taken[at] && canListen(ctx, at) == nil {
				return at, nil
			}
		}
	}
	if req.Port != 0 {
		return none("port %d is taken on every address of this host", req.Port)
	}
	return none("no port between %d and %d is free on any address of this host", first, last)
}

// sourcesOf are the source addresses of who listens on a. One that is configured no more
// keeps itself, so that what runs goes on leaving as it did.
func (b *Backend) sourcesOf(a netip.Addr) []netip.Addr {
	if sources := b.sources[a]; len(sources) > 0 || a.IsLoopback() {
		return sources
	}
	return []netip.Addr{a}
}

// taken tells which places other names have, whoever owns them, and how many names.
func (b *Backend) taken(but string) (taken map[netip.AddrPort]bool, load map[netip.Addr]int, n int, err error) {
	names, err := b.names()
	if err != nil {
		return nil, nil, 0, err
	}
	taken, load = map[netip.AddrPort]bool{}, map[netip.Addr]int{}
	for _, name := range names {
		var s state
		if name == but {
			continue
		}
		n++
		if _, err := get(paths{b.dir, name}.file(extState), &s); err == nil && s.Address.IsValid() {
			taken[netip.AddrPortFrom(s.Address, uint16(s.Port))] = true
			load[s.Address]++
		}
	}
	return taken, load, n, nil
}
