package libvirt

import (
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// copyBudget bounds libvirt's copying of a base to a disk that is a device.
const copyBudget = time.Hour

// diskFits compares the disk with what it should be. A copy cannot be told from half of one
// by itself, so the marker names the base that it is a whole copy of.
func (v volumes) diskFits(s *session, name string, m marker, base images.Base) (bool, error) {
	vol, there, err := v.find(s, v.disk(name))
	if err != nil || !there {
		return false, err
	}
	d, err := v.describe(s, vol)
	if err != nil || d.Capacity == nil || d.Capacity.Unit != "bytes" {
		return false, ignoreAnswer(err)
	}
	if v.block {
		return m.Copied == base.Digest && int64(d.Capacity.Value) >= m.DiskBytes, nil
	}
	return int64(d.Capacity.Value) == m.DiskBytes &&
		d.Target != nil && d.Target.Format != nil && d.Target.Format.Type == "qcow2" &&
		d.BackingStore != nil && d.BackingStore.Path == base.Path &&
		d.BackingStore.Format != nil && d.BackingStore.Format.Type == base.Format, nil
}

func (v volumes) createDisk(s *session, name string, m *marker, base images.Base) error {
	vol, there, err := v.find(s, v.disk(name))
	if err != nil {
		return err
	}
	if there {
		if err := v.delete(s, "volume.remove", vol); err != nil {
			return err
		}
	}
	d := plain(v.disk(name), m.DiskBytes, "0600")
	if v.block {
		return v.copyBase(s, name, d, m, base)
	}
	d.Target.Format.Type = "qcow2"
	d.BackingStore = &libvirtxml.StorageVolumeBackingStore{
		Path: base.Path, Format: &libvirtxml.StorageVolumeTargetFormat{Type: base.Format},
	}
	_, err = v.create(s, "disk.create", d)
	return err
}

// copyBase makes a device with a copy of base, which libvirt makes itself, and notes in the
// marker that it is whole.
func (v volumes) copyBase(s *session, name string, d libvirtxml.StorageVolume, m *marker, base images.Base) error {
	from, there, err := v.find(s, v.baseName(base.Digest, base.Format))
	if err != nil {
		return err
	}
	if !there {
		return backends.Errorf(backends.ErrTransient, "create disk", "the base image %s is gone from the pool; it is fetched again", v.baseName(base.Digest, base.Format))
	}
	d.Target.Format = nil
	text, err := d.Marshal()
	if err != nil {
		return backends.Wrap(backends.ErrPermanent, "create disk", err, "the volume %s cannot be described", d.Name)
	}
	if err := backends.Step(s.ctx, "disk.create"); err != nil {
		return err
	}
	err = s.do("create disk", copyBudget, grace, func(l *golibvirt.Libvirt) error {
		_, err := l.StorageVolCreateXMLFrom(v.pool, text, from, 0)
		return err
	})
	if err != nil {
		return err
	}
	m.Copied = base.Digest
	return v.writeMarker(s, name, *m)
}
