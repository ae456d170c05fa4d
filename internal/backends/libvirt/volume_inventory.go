package libvirt

import (
	"strings"
	"sync"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// volumeMemory is what is remembered of volumes, so that a listing costs no call for each.
type volumeMemory struct {
	mu      sync.Mutex        // guards the fields that follow
	markers map[string]marker // by key of the volume
	sizes   map[string]rememberedSize
	// unwritten are markers without content, by name, and when they were first seen.
	unwritten map[string]time.Time
	// changing holds one token, for whoever creates or removes a volume: tools like LVM's are
	// not fond of company.
	changing chan struct{}
}

type rememberedSize struct {
	bytes int64
	read  time.Time
}

// sizeAge is how old a remembered size of a disk may be. One that has grown since only makes
// the host look a little smaller.
const sizeAge = time.Minute

func newVolumeMemory() *volumeMemory {
	return &volumeMemory{markers: map[string]marker{}, sizes: map[string]rememberedSize{}, unwritten: map[string]time.Time{}, changing: make(chan struct{}, 1)}
}

// pieces are the volumes of instances, by instance name. Markers come last.
func (v volumes) pieces(s *session) (map[string][]piece, error) {
	all, err := v.list(s)
	if err != nil {
		return nil, err
	}
	found, markers := map[string][]piece{}, map[string][]piece{}
	for _, vol := range all {
		name, suffix, ok := nameOf(vol.Name)
		switch {
		case !ok:
		case strings.HasSuffix(suffix, ".json"):
			markers[name] = append(markers[name], piece{kind: "marker", name: vol.Name, vol: vol})
		case suffix == v.format("qcow2"):
			found[name] = append(found[name], piece{kind: "volume", name: vol.Name, vol: vol})
		default:
			found[name] = append(found[name], piece{kind: kindOf(suffix), name: vol.Name, vol: vol})
		}
	}
	for name, of := range markers {
		found[name] = append(found[name], of...)
	}
	return found, nil
}

func (v volumes) inventory(s *session) (inventory, error) {
	pieces, err := v.pieces(s)
	if err != nil {
		return inventory{}, err
	}
	found := inventory{pieces: pieces}
	for name, of := range pieces {
		for _, x := range of {
			if x.kind != "marker" {
				continue
			}
			m, filled, err := v.readMarker(s, x.vol, true)
			switch {
			case s.ctx.Err() != nil:
				return inventory{}, err
			case err != nil:
				found.unread = append(found.unread, backends.Unread{What: x.name, Err: err})
			case filled && backends.InstanceName(m.UID) == name:
				found.markers = append(found.markers, m)
				v.measure(s, of, m)
			}
		}
	}
	return found, nil
}

func (v volumes) belongings(s *session, name string) (belongings, error) {
	all, err := v.pieces(s)
	if err != nil {
		return belongings{}, err
	}
	has := belongings{pieces: all[name]}
	for _, x := range has.pieces {
		if x.kind != "marker" {
			continue
		}
		m, filled, err := v.readMarker(s, x.vol, false)
		own := x.name == markerName(name, v.b.owner)
		switch {
		case err != nil:
			return belongings{}, err
		case own && !filled:
			has.claimed = true
		case own:
			has.marker, has.marked = m, true
		default:
			has.foreign = x.name
			if filled && !has.marked {
				has.marker, has.marked = m, true
			}
		}
	}
	return has, nil
}

// measure reads what the disk among the pieces takes.
func (v volumes) measure(s *session, pieces []piece, m marker) {
	for i := range pieces {
		if pieces[i].kind == "volume" {
			pieces[i].bytes = v.size(s, pieces[i].vol, m)
		}
	}
}

// size is what a disk takes in the pool: what it may take at most on a device, and otherwise
// what was read not long ago.
func (v volumes) size(s *session, vol golibvirt.StorageVol, m marker) int64 {
	if v.block {
		return m.DiskBytes
	}
	mem := v.b.volumes
	mem.mu.Lock()
	known, ok := mem.sizes[vol.Key]
	mem.mu.Unlock()
	if ok && time.Since(known.read) < sizeAge {
		return known.bytes
	}
	n, err := read(s, "read volume", func(l *golibvirt.Libvirt) (uint64, error) {
		_, _, allocation, err := l.StorageVolGetInfo(vol)
		return allocation, err
	})
	if err != nil {
		return known.bytes
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	mem.sizes[vol.Key] = rememberedSize{int64(n), time.Now()}
	return int64(n)
}
