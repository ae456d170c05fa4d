package libvirt

import (
	"context"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// Get implements [backends.Backend].
func (b *Backend) Get(ctx context.Context, ref backends.Ref) (backends.Instance, error) {
	if err := ref.Validate(); err != nil {
		return backends.Instance{}, err
	}
	s, err := b.open(ctx)
	if err != nil {
		return backends.Instance{}, err
	}
	defer s.close()
	found, err := b.look(s, ref)
	if err != nil {
		return backends.Instance{}, err
	}
	if !found.there {
		return backends.Instance{}, backends.Errorf(backends.ErrNotFound, "get", "there is no domain %s of proxy %s", backends.InstanceName(ref.UID), ref.Proxy)
	}
	// While the pool is not active nothing is known of its files, and the guest may run on.
	p, err := b.anyPool(s)
	if err != nil && ctx.Err() != nil {
		return backends.Instance{}, err
	}
	if err != nil || !p.active {
		p.place = place{}
	}
	i, err := b.instance(s, found, p.place)
	if err == nil && i.Status == backends.StatusRunning {
		i.Addresses, i.AddressUnread = b.addresses(s, found.dom, macAddress(ref.UID))
		err = ctx.Err()
	}
	if err != nil && ctx.Err() != nil {
		return backends.Instance{}, backends.Wrap(backends.ErrTransient, "get", ctx.Err(), "proxy %s could not be read in time", ref.Proxy)
	}
	return i, err
}

// instance reads a domain's state. Addresses are left unread.
func (b *Backend) instance(s *session, found seen, p place) (backends.Instance, error) {
	state, reason, err := domainState(s, found.dom)
	if err != nil {
		return backends.Instance{}, err
	}
	return describe(found, state, reason, p), nil
}

// describe puts an instance together. An empty place says that its files cannot be seen.
func describe(found seen, state golibvirt.DomainState, reason int32, p place) backends.Instance {
	i := backends.Instance{Mark: found.Mark, ID: domainUUID(found.UID), Port: found.Port, Generation: found.Generation, AddressUnread: true}
	i.Status, i.Reason, i.Message = status(state, reason)
	if p.dir != "" && !exists(p.disk(backends.InstanceName(found.UID))) {
		i.Status, i.Reason, i.Message = backends.StatusBroken, "DiskMissing", "the guest's disk is gone from the storage pool"
	}
	return i
}
