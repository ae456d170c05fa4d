package libvirt

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"proxyfleet/internal/backends"
)

// begunAge is how long a marker may be on its way. No call takes as long.
const begunAge = time.Hour

// Tidy implements [backends.Tidier]: it removes what fetches have left, bases above the cap of
// the image cache, and markers that were begun and never written. Those say of nothing whose
// it is, so that no listing has them; their names say that they are this agent's.
func (b *Backend) Tidy(ctx context.Context) error {
	_, err := b.PruneImages(ctx, b.imageCap())
	return errors.Join(err, b.with(ctx, func(s *session) error {
		p, err := b.pool(s)
		if err != nil {
			return err
		}
		return p.tidy(s, b.now())
	}))
}

func (p place) tidy(s *session, now time.Time) error {
	all, err := p.files()
	if err != nil {
		return err
	}
	for name, of := range all {
		for _, x := range of {
			draft := strings.HasPrefix(strings.TrimPrefix(filepath.Base(x.name), "."), filepath.Base(p.draft(name)))
			info, err := os.Lstat(x.name)
			if !draft || err != nil || now.Sub(info.ModTime()) <= begunAge {
				continue
			}
			if err := p.remove(s, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidy looks twice, since libvirt does not say of every volume how old it is.
func (v volumes) tidy(s *session, now time.Time) error {
	all, err := v.pieces(s)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for name, of := range all {
		x := of[0]
		if len(of) != 1 || x.name != markerName(name, v.b.owner) {
			continue
		}
		_, filled, err := v.readMarker(s, x.vol, true)
		switch {
		case err != nil && backends.Ended(err):
			return err
		case err != nil || filled:
			continue // listings have it, or say that it cannot be read
		}
		seen[x.name] = true
		if now.Sub(v.b.volumes.firstSeen(x.name, now)) <= begunAge {
			continue
		}
		if err := v.remove(s, x); err != nil {
			return err
		}
	}
	v.b.volumes.forgetUnwritten(seen)
	return nil
}

// firstSeen notes that a marker without content was seen now, and returns when it was first.
func (m *volumeMemory) firstSeen(name string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.unwritten[name]; !known {
		m.unwritten[name] = now
	}
	return m.unwritten[name]
}

// forgetUnwritten keeps only those that were seen.
func (m *volumeMemory) forgetUnwritten(seen map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.unwritten, func(name string, _ time.Time) bool { return !seen[name] })
}
