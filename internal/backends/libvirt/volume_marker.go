package libvirt

import (
	"bytes"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// recordSize is the room of a marker or a record of a base: one write, so that there is either
// nothing in it or all.
const recordSize = 4096

// record fills a text up to recordSize. JSON may end with as many spaces as it likes.
func record(text []byte) []byte {
	return append(text, bytes.Repeat([]byte(" "), max(recordSize-len(text), 0))...)
}

// readMarker reads a marker; filled is false where a volume was made for one and nothing was
// written to it. remembered says that a marker that was read before will do: it never changes
// but by its owner.
func (v volumes) readMarker(s *session, vol golibvirt.StorageVol, remembered bool) (m marker, filled bool, err error) {
	mem := v.b.volumes
	if remembered {
		mem.mu.Lock()
		m, filled = mem.markers[vol.Key]
		mem.mu.Unlock()
		if filled {
			return m, true, nil
		}
	}
	text, err := v.download(s, vol, recordSize)
	if err != nil {
		return marker{}, false, err
	}
	if len(bytes.Trim(text, "\x00")) == 0 {
		return marker{}, false, nil
	}
	if m, err = parseMarker(text, vol.Name); err != nil {
		return marker{}, false, err
	}
	mem.mu.Lock()
	defer mem.mu.Unlock()
	mem.markers[vol.Key] = m
	return m, true, nil
}

// writeMarker overwrites the marker in its place: what is there is never taken away for it.
func (v volumes) writeMarker(s *session, name string, m marker) error {
	text := m.text()
	if len(text) > recordSize {
		return backends.Errorf(backends.ErrPermanent, "write marker", "the marker of proxy %s is larger than %d bytes", m.Proxy, recordSize)
	}
	vol, err := v.room(s, markerName(name, v.b.owner), "marker", recordSize)
	if err != nil {
		return err
	}
	mem := v.b.volumes
	mem.mu.Lock()
	delete(mem.markers, vol.Key)
	mem.mu.Unlock()
	return v.fill(s, "marker.write", vol, record(text))
}
