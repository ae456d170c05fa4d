package libvirt

import (
	"context"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// undefineAll takes everything along that libvirt keeps of a domain.
const undefineAll = golibvirt.DomainUndefineManagedSave | golibvirt.DomainUndefineSnapshotsMetadata |
	golibvirt.DomainUndefineNvram | golibvirt.DomainUndefineCheckpointsMetadata

// Delete implements [backends.Backend]. The marker goes last, so that what an earlier try
// left is found by the next.
func (b *Backend) Delete(ctx context.Context, ref backends.Ref) error {
	if err := ref.Validate(); err != nil {
		return err
	}
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := b.look(s, ref)
	if err != nil {
		return err
	}
	// Without the pool nobody can say that nothing is left.
	p, err := b.pool(s)
	if err != nil {
		return err
	}
	has, err := b.lookFor(s, p, ref, found.there)
	if err != nil {
		return err
	}
	if found.there {
		if err := removeDomain(s, found.dom, ref.Proxy); err != nil {
			return err
		}
		b.marks.forget(found.dom.UUID)
		b.guests.stopped(ref.UID)
	}
	for _, x := range has.pieces {
		if err := ctx.Err(); err != nil {
			return backends.Wrap(backends.ErrTransient, "delete", err, "stopped; what is left is removed by the next try")
		}
		if err := p.remove(s, x); err != nil {
			return err
		}
	}
	if len(has.pieces) > 0 {
		b.refreshPool(ctx, p)
	}
	b.guests.left(ref.UID, false)
	return backends.Step(ctx, "done")
}

// removeDomain switches a domain off and undefines it. While something is done with it that
// this would end, it is left as it is.
func removeDomain(s *session, dom golibvirt.Domain, proxy string) error {
	active, lasting, err := activity(s, dom)
	if err != nil && backends.Class(err) != backends.ErrNotFound {
		return err
	}
	if active {
		if err := undisturbed(s, dom, proxy); err != nil {
			return err
		}
		err := s.write("domain.destroy", "destroy domain", func(l *golibvirt.Libvirt) error {
			return gone(l.DomainDestroyFlags(dom, 0))
		})
		if err != nil {
			return err
		}
	}
	if !lasting {
		return nil // it was gone with its process
	}
	return s.write("domain.undefine", "undefine domain", func(l *golibvirt.Libvirt) error {
		err := l.DomainUndefineFlags(dom, undefineAll)
		if hasCode(err, golibvirt.ErrNoDomain) {
			return nil
		}
		return err
	})
}
