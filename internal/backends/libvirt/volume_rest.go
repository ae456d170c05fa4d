package libvirt

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends/images"
)

// sumOf is what stands of a digest in the stem of a base.
func sumOf(stem string) string { return strings.TrimPrefix(stem, basePrefix)[:24] }

// rests are bases of this agent's own that are not whole, and everything that is on this
// machine on its way to the pool. An upload cannot be resumed: one that nobody is at is idle.
func (v volumes) rests(s *session) (found []rest, err error) {
	dir, err := v.b.imagePath()
	if err != nil {
		return nil, err
	}
	local, err := images.Transit(dir)
	if err != nil {
		return nil, fileError("list images", err)
	}
	for _, r := range local {
		found = append(found, rest{Rest: r})
	}
	all, err := v.list(s)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, vol := range all {
		stem, _, _ := strings.Cut(vol.Name, ".")
		if seen[stem] || !v.ownBase(vol.Name) {
			continue
		}
		seen[stem] = true
		parts, err := v.notWhole(s, all, stem)
		if err != nil {
			return nil, err
		}
		x, err := measured(s, rest{stem: stem}, parts)
		if err != nil {
			return nil, err
		}
		if x.Path != "" {
			x.Busy = images.Locked(images.UploadLock(dir, sumOf(stem)))
			found = append(found, x)
		}
	}
	return found, nil
}

// measured is a rest with the path and the size of its volumes, as far as they are there.
func measured(s *session, x rest, parts []golibvirt.StorageVol) (rest, error) {
	for _, vol := range parts {
		err := s.do("read volume", readBudget, 0, func(l *golibvirt.Libvirt) error {
			_, _, bytes, err := l.StorageVolGetInfo(vol)
			if err != nil {
				return err
			}
			x.Bytes += int64(bytes)
			x.Path, err = l.StorageVolGetPath(vol)
			return err
		})
		if ignoreAnswer(err) != nil {
			return rest{}, err
		}
	}
	return x, nil
}

// notWhole are the volumes of a stem that are not a base and its record. An image comes
// behind a record.
func (v volumes) notWhole(s *session, all []golibvirt.StorageVol, stem string) (parts []golibvirt.StorageVol, err error) {
	base, err := v.storedBase(s, stem+".json")
	if err != nil {
		return nil, err
	}
	for _, vol := range all {
		if of, _, _ := strings.Cut(vol.Name, "."); of != stem || base.Path != "" && (vol.Name == stem+".json" || vol.Name == path.Base(base.Path)) {
			continue
		}
		parts = append(parts, vol)
	}
	slices.SortFunc(parts, func(a, b golibvirt.StorageVol) int { return strings.Compare(a.Name, b.Name) })
	return parts, nil
}

func (v volumes) removeRest(s *session, x rest, now time.Time) (removed bool, err error) {
	if x.stem == "" {
		return x.Remove(now)
	}
	dir, err := v.b.imageDir()
	if err != nil {
		return false, err
	}
	file := images.UploadLock(dir, sumOf(x.stem))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false, fileError("remove images", err)
	}
	lock, err := images.TryLock(file)
	if err != nil || lock == nil {
		return false, fileError("remove images", err)
	}
	defer images.Unlock(lock)
	all, err := v.list(s)
	if err != nil {
		return false, err
	}
	parts, err := v.notWhole(s, all, x.stem)
	for _, vol := range parts {
		if err := v.delete(s, "base.remove", vol); err != nil {
			return removed, err
		}
		removed = true
	}
	return removed, err
}
