package libvirt

import (
	"context"
	"fmt"
	"time"

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
		b.guests.stopped(ref.UID)
		return backends.Instance{}, backends.Errorf(backends.ErrNotFound, "get", "there is no domain %s of proxy %s", backends.InstanceName(ref.UID), ref.Proxy)
	}
	i, err := b.instance(s, found)
	if err == nil && i.Status == backends.StatusRunning {
		i.Addresses, i.AddressUnread = b.addresses(s, found.dom, macAddress(ref.UID))
		if err = ctx.Err(); err == nil {
			b.remark(s, found.dom, &i)
		}
	}
	if err != nil && ctx.Err() != nil {
		return backends.Instance{}, backends.Wrap(backends.ErrTransient, "get", ctx.Err(), "proxy %s could not be read in time", ref.Proxy)
	}
	return i, err
}

// remark tells what is strange about a running guest: its addresses, and what is done with it.
func (b *Backend) remark(s *session, dom golibvirt.Domain, i *backends.Instance) {
	shared, silent := b.guests.saw(i.Mark, i.Addresses, i.AddressUnread, b.now())
	j, _ := jobOf(s, dom)
	switch {
	case i.Reason != "":
	case shared != "":
		i.Reason, i.Message = "AddressShared", shared+": one of them is configured by hand, or two DHCP servers answer"
	case j.name != "":
		i.Reason, i.Message = "JobRunning", fmt.Sprintf("libvirt is at a %s of the guest; changes wait for it. To end it: %s", j.name, j.end)
	case silent >= silentAfter:
		i.Reason, i.Message = "GuestSilent", fmt.Sprintf("the guest runs and has reported no address for %s", silent.Round(time.Minute))
		if p, err := b.anyPool(s); err == nil {
			if dir, ok := p.storage.(place); ok {
				i.Message += said(dir.lastWords(backends.InstanceName(i.Mark.UID)))
			}
		}
	}
}

// instance reads a domain's state. Addresses are left unread.
func (b *Backend) instance(s *session, found seen) (backends.Instance, error) {
	state, reason, err := domainState(s, found.dom)
	if err != nil {
		return backends.Instance{}, err
	}
	if state != golibvirt.DomainRunning && state != golibvirt.DomainBlocked {
		b.guests.stopped(found.UID)
	}
	gone, err := b.diskGone(s, backends.InstanceName(found.UID))
	if err != nil {
		return backends.Instance{}, err
	}
	return describe(found, state, reason, gone), nil
}

// diskGone reports whether an instance's disk is missing. While the pool cannot be read
// nothing is known of it, and the guest may run on: its error is the end of s only.
func (b *Backend) diskGone(s *session, name string) (bool, error) {
	p, err := b.anyPool(s)
	if err == nil && p.active {
		var has belongings
		if has, err = p.storage.belongings(s, name); err == nil {
			_, there := disk(has.pieces)
			return !there, nil
		}
	}
	if s.ctx.Err() != nil {
		return false, err
	}
	return false, nil
}

// describe puts an instance together.
func describe(found seen, state golibvirt.DomainState, reason int32, diskGone bool) backends.Instance {
	i := backends.Instance{Mark: found.Mark, ID: domainUUID(found.UID), Port: found.Port, Generation: found.Generation, AddressUnread: true}
	i.Status, i.Reason, i.Message = status(state, reason)
	if diskGone {
		i.Status, i.Reason, i.Message = backends.StatusBroken, "DiskMissing", "the guest's disk is gone from the storage pool"
	}
	return i
}
