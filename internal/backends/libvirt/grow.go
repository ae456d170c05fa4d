package libvirt

import (
	"maps"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// reshaped is the marker of an instance that becomes as r asks, where that can be in place:
// another machine type, which takes a restart, and a larger disk, which does not. changed is
// false where it is so already.
func (m marker) reshaped(r resolved) (next marker, changed bool) {
	now := fieldHashes(m.Salt, r)
	next = m
	next.Fields = maps.Clone(m.Fields)
	if m.differs(now, fieldMachineType) {
		next.VCPUs, next.MemoryMiB = r.shape.VCPUs, r.shape.MemoryMiB
		next.Fields[fieldMachineType], changed = now[fieldMachineType], true
	}
	if m.differs(now, fieldDiskGiB) {
		next.DiskBytes = int64(r.DiskGiB) << 30
		next.Fields[fieldDiskGiB], changed = now[fieldDiskGiB], true
	}
	return next, changed
}

// surveyGrowth asks for the room that a change in place takes.
func (w *work) surveyGrowth(s *session) error {
	next, changed := w.marker.reshaped(w.r)
	switch {
	case !changed:
		return nil
	case next.VCPUs == 0:
		return w.r.missing // there is no such machine type
	}
	before := w.b.admitted()
	u, err := w.b.usage(s, w.pool)
	if err != nil {
		return err
	}
	release, err := w.b.admit(u, before, w.r.UID, requirement{
		max(next.VCPUs-w.marker.VCPUs, 0), max(next.MemoryMiB-w.marker.MemoryMiB, 0), max(next.DiskBytes-w.marker.DiskBytes, 0),
	})
	if err != nil {
		return err
	}
	w.release, w.next = release, &next
	return nil
}

// grow gives the instance its new shape. The marker has the old one until the disk is
// larger, so that a try that was cut off is done again.
func (w *work) grow(s *session) error {
	if w.next == nil {
		return nil
	}
	if !w.diskGone && w.next.DiskBytes > w.marker.DiskBytes {
		w.report(backends.Progress{Step: "growing disk"})
		if err := w.growDisk(s); err != nil {
			return err
		}
	}
	if w.active && (w.next.VCPUs != w.marker.VCPUs || w.next.MemoryMiB != w.marker.MemoryMiB) {
		if err := w.stop(s); err != nil {
			return err
		}
		w.active = false
	}
	w.marker, w.marked, w.next = *w.next, false, nil // it is to be written
	return nil
}

// growDisk makes the disk larger, under a guest that runs or without one. The guest's file
// system follows at its next boot, by cloud-init's growpart. QEMU grows a file that it has
// open by itself, a device it is only told of.
func (w *work) growDisk(s *session) error {
	at, err := w.pool.attach(s, w.name, w.base)
	if err != nil {
		return err
	}
	err = s.write("disk.grow", "grow disk", func(l *golibvirt.Libvirt) error {
		if !w.active || at.root.kind == "block" {
			if err := w.growVolume(l, at.root.path); err != nil {
				return err
			}
		}
		if !w.active {
			return nil
		}
		return l.DomainBlockResize(w.dom, rootTarget, uint64(w.next.DiskBytes), golibvirt.DomainBlockResizeBytes)
	})
	switch {
	case err == nil:
		return nil
	case hasCode(err, golibvirt.ErrNoSupport): // logical volumes, in libvirt 9.0
		return backends.Wrap(backends.ErrPermanent, "grow disk", err, "disks in pool %q do not grow; the guest is kept as it is. Delete the proxy and make it anew", w.b.cfg.StoragePool)
	}
	return backends.Wrap(backends.Class(err), "grow disk", err, "the disk of proxy %s was not brought from %d to %d GiB; the guest is kept as it is",
		w.r.Proxy, w.marker.DiskBytes>>30, w.next.DiskBytes>>30)
}

func (w *work) growVolume(l *golibvirt.Libvirt, path string) error {
	// The volume may have come after libvirt last looked.
	pool, err := l.StoragePoolLookupByName(w.b.cfg.StoragePool)
	if err == nil {
		err = l.StoragePoolRefresh(pool, 0)
	}
	if err != nil {
		return err
	}
	vol, err := l.StorageVolLookupByPath(path)
	if err != nil {
		return err
	}
	if _, capacity, _, err := l.StorageVolGetInfo(vol); err != nil || capacity >= uint64(w.next.DiskBytes) {
		return err
	}
	return l.StorageVolResize(vol, uint64(w.next.DiskBytes), 0)
}
