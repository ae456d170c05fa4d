package libvirt

import (
	"encoding/hex"
	"strings"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// seen is a domain of ours, or that there is none.
type seen struct {
	there bool
	dom   golibvirt.Domain
	domainMark
}

// look finds the domain of ref. One under its name, or with its UUID, that is not ours is
// ErrConflict; a mark that cannot be read is ErrTransient, for it says nothing.
func (b *Backend) look(s *session, ref backends.Ref) (seen, error) {
	n := backends.InstanceName(ref.UID)
	dom, err := read(s, "look up domain", func(l *golibvirt.Libvirt) (golibvirt.Domain, error) { return l.DomainLookupByName(n) })
	if backends.Class(err) == backends.ErrNotFound {
		return seen{}, b.lookRenamed(s, ref, n)
	}
	if err != nil {
		return seen{}, err
	}
	m, marked, err := readMark(s, dom)
	switch {
	case backends.Class(err) == backends.ErrNotFound:
		return seen{}, nil // it vanished between two calls
	case err != nil:
		return seen{}, err
	case !marked:
		return seen{}, backends.Errorf(backends.ErrConflict, "look up domain",
			"a domain %s is there that proxyfleet did not make; it is left alone. Rename or remove it (virsh domrename, virsh undefine)", n)
	case !m.Owned(b.owner):
		return seen{}, backends.Errorf(backends.ErrConflict, "look up domain",
			"the domain %s belongs to installation %s and host %s; it is left alone", n, m.Installation, m.HostID)
	case m.UID != ref.UID || m.Proxy != ref.Proxy:
		return seen{}, backends.Errorf(backends.ErrConflict, "look up domain",
			"the domain %s is of proxy %s, uid %s; it is left alone", n, m.Proxy, m.UID)
	}
	return seen{there: true, dom: dom, domainMark: m}, nil
}

// lookRenamed finds a domain with the UUID of ref under another name.
func (b *Backend) lookRenamed(s *session, ref backends.Ref, n string) error {
	var id golibvirt.UUID
	_, _ = hex.Decode(id[:], []byte(strings.ReplaceAll(domainUUID(ref.UID), "-", "")))
	dom, err := read(s, "look up domain", func(l *golibvirt.Libvirt) (golibvirt.Domain, error) { return l.DomainLookupByUUID(id) })
	if backends.Class(err) == backends.ErrNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if dom.Name == n {
		return backends.Errorf(backends.ErrTransient, "look up domain", "the domain %s appeared between two calls", n)
	}
	return backends.Errorf(backends.ErrConflict, "look up domain",
		"the domain of proxy %s was renamed to %q; it is left alone. Name it %s again (virsh domrename)", ref.Proxy, dom.Name, n)
}

// readMark reads a domain's mark; marked is false where there is none.
func readMark(s *session, dom golibvirt.Domain) (m domainMark, marked bool, err error) {
	text, err := read(s, "read mark", func(l *golibvirt.Libvirt) (string, error) {
		return l.DomainGetMetadata(dom, int32(golibvirt.DomainMetadataElement), golibvirt.OptString{markNamespace}, golibvirt.DomainAffectCurrent)
	})
	if hasCode(err, golibvirt.ErrNoDomainMetadata) {
		return domainMark{}, false, nil
	}
	if err != nil {
		return domainMark{}, false, err
	}
	if m, err = parseMark(text); err != nil {
		return domainMark{}, true, backends.Wrap(backends.ErrTransient, "read mark", err, "the mark of domain %s cannot be read; it is left alone", dom.Name)
	}
	return m, true, nil
}

// lookFor reads what bears the name of ref in the pool and refuses what is not ours. owned
// says that the domain is there with our mark: then there need be no marker.
func (b *Backend) lookFor(s *session, p storage, ref backends.Ref, owned bool) (belongings, error) {
	n := backends.InstanceName(ref.UID)
	has, err := p.belongings(s, n)
	if err != nil {
		return belongings{}, err
	}
	m := has.marker
	if has.marked && (!m.mark().Owned(b.owner) || m.UID != ref.UID || m.Proxy != ref.Proxy) {
		return belongings{}, backends.Errorf(backends.ErrConflict, "look for files",
			"the files of %s in the pool belong to installation %s, host %s, proxy %s, uid %s; they are left alone", n, m.Installation, m.HostID, m.Proxy, m.UID)
	}
	if has.foreign != "" {
		return belongings{}, backends.Errorf(backends.ErrConflict, "look for files",
			"the marker %s in the pool is of another host or installation; it and what goes with it are left alone", has.foreign)
	}
	if has.marked || has.claimed || owned {
		return has, nil
	}
	for _, x := range has.pieces {
		// What a write that was cut off left is nobody's: writes make these names only.
		if x.kind != "temporary" {
			return belongings{}, backends.Errorf(backends.ErrConflict, "look for files",
				"%s is there and proxyfleet did not make it; it is left alone. Move it away", x.name)
		}
	}
	return has, nil
}
