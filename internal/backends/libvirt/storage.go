package libvirt

import (
	"context"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// storage keeps what instances are made of in one pool: base images, and for each instance a
// marker, a disk and a seed. [place] does it in the pool's directory, [volumes] through
// libvirt alone. Names are instance names. Both make a thing whole or leave it in a state
// that is told from whole; every side effect is a labelled step.
type storage interface {
	// inventory reads everything in the pool that bears the name of an instance.
	inventory(s *session) (inventory, error)
	// belongings reads what bears one name, always anew.
	belongings(s *session, name string) (belongings, error)
	// free is the room in bytes that the pool has for the agent.
	free(s *session) (int64, error)
	// refresh has the pool looked at anew where inventory and free tell what was there at
	// some earlier time, and reports whether it was.
	refresh(s *session) bool

	// findBase returns the base with a digest and format, with an empty Path when it is not
	// there as a whole.
	findBase(s *session, digest, format string) (images.Base, error)
	// fetchBase makes the base of src be there. No session is open meanwhile: it may take as
	// long as a download.
	fetchBase(ctx context.Context, src images.Source, report func(backends.Progress)) (images.Base, error)
	// bases lists the bases that are whole, those first that were not asked for the longest.
	bases(s *session) ([]images.Stored, error)
	// builtOn are the paths that images in the pool are built on, whoever made them.
	builtOn(s *session) (map[string]bool, error)
	// removeBase removes one that nothing is built on.
	removeBase(s *session, b images.Base) error
	// rests lists what fetches are at or have left, in the pool and on the way to it.
	rests(s *session) ([]rest, error)
	// removeRest removes one that nothing is built on, and reports whether that was something:
	// somebody may have gone on with it since it was listed.
	removeRest(s *session, x rest, now time.Time) (bool, error)

	// writeMarker writes the marker of a name, in place of the one that is there.
	writeMarker(s *session, name string, m marker) error
	// diskFits reports whether a whole disk is there that was made on base with m's size.
	diskFits(s *session, name string, m marker, base images.Base) (bool, error)
	// createDisk makes it, in place of one that does not fit.
	createDisk(s *session, name string, m *marker, base images.Base) error
	// seedIs reports whether the seed has exactly this content.
	seedIs(s *session, name string, iso []byte) (bool, error)
	writeSeed(s *session, name string, iso []byte) error
	// tidy removes markers of this agent's own that were begun and never written.
	tidy(s *session, now time.Time) error
	// remove removes a piece; that it is gone already is no error.
	remove(s *session, p piece) error

	// attach says how a domain names its disk, made on base, and its seed.
	attach(s *session, name string, base images.Base) (attachment, error)
}

// rest is what a fetch is at or has left.
type rest struct {
	images.Rest
	stem string // of the names of its volumes; empty: it is files
}

// piece is one thing that bears the name of an instance.
type piece struct {
	kind string // "marker", "volume", "seed", "nvram", "console" or "temporary"
	name string // a path, or a volume's name
	// bytes that it takes in the pool now.
	bytes int64
	vol   golibvirt.StorageVol // of the volumes only
}

// inventory is everything in a pool that bears the name of an instance.
type inventory struct {
	markers []marker           // whoever's
	unread  []backends.Unread  // markers that cannot be read
	pieces  map[string][]piece // by instance name, the markers among them
}

// disk finds the disk of an instance.
func (i inventory) disk(name string) (piece, bool) { return disk(i.pieces[name]) }

// belongings is what bears one name.
type belongings struct {
	marker marker
	marked bool // the marker is there and was read
	// claimed says that a marker of ours is there that was never filled: a write that was cut off.
	claimed bool
	foreign string  // a marker of somebody else's beside or in place of ours; empty: none is known
	pieces  []piece // the marker is the last of them
}

func disk(pieces []piece) (piece, bool) {
	for _, p := range pieces {
		if p.kind == "volume" {
			return p, true
		}
	}
	return piece{}, false
}

// attachment is how a domain names its storage.
type attachment struct {
	root, seed diskSource
	nvram      string // UEFI variables; empty: where libvirt puts them
	console    string // log of the serial console; empty: none is kept
}

// diskSource is one image as QEMU opens it.
type diskSource struct {
	kind    string // of disk: "file" or "block"
	path    string
	format  string
	backing *diskSource // nil: it stands alone
}

// element names the image in a disk.
func (x diskSource) element() *libvirtxml.DomainDiskSource {
	if x.kind == "block" {
		return &libvirtxml.DomainDiskSource{Block: &libvirtxml.DomainDiskSourceBlock{Dev: x.path}}
	}
	return &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: x.path}}
}

// chain is what the image is built on, to its end. It is empty for one that stands alone:
// that tells QEMU not to look for more.
func (x diskSource) chain() *libvirtxml.DomainDiskBackingStore {
	if x.backing == nil {
		return &libvirtxml.DomainDiskBackingStore{}
	}
	return &libvirtxml.DomainDiskBackingStore{
		Format:       &libvirtxml.DomainDiskFormat{Type: x.backing.format},
		Source:       x.backing.element(),
		BackingStore: x.backing.chain(),
	}
}
