package libvirt

import (
	"bytes"
	"errors"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

var _ storage = volumes{}

// volumes is a pool whose files the agent does not use itself: it is on another machine, or
// its volumes are devices. Everything goes through libvirt's volumes. Those cannot be renamed,
// so whatever is not made in one call has a sign of being whole that comes last: a seed is
// compared with what it should be, a base has a record beside it, a copied disk is named in
// the marker.
//
//	N.qcow2, N.raw                      the disk: an overlay on a base, or a copy where volumes are devices
//	N.iso                               the seed
//	N.<owner>.json                      the marker. It is made and then written: until then its
//	                                    name says whose it is
//	pf-base-<digest>-<owner>.qcow2      a base of this agent's own
//	pf-base-<digest>-<owner>.json       its record, written last
type volumes struct {
	b     *Backend
	pool  golibvirt.StoragePool
	block bool // volumes are devices: raw, and without overlays
}

// format is that of disks and bases: of, except on devices.
func (v volumes) format(of string) string {
	if v.block {
		return "raw"
	}
	return of
}

func (v volumes) disk(name string) string { return name + "." + v.format("qcow2") }

func seedName(name string) string { return name + ".iso" }

// markerName is that of an owner's marker.
func markerName(name string, o backends.Owner) string { return name + "." + ownerTag(o) + ".json" }

// list reads the names of all volumes in one call.
func (v volumes) list(s *session) ([]golibvirt.StorageVol, error) {
	return read(s, "list volumes", func(l *golibvirt.Libvirt) ([]golibvirt.StorageVol, error) {
		all, _, err := l.StoragePoolListAllVolumes(v.pool, 1, 0)
		return all, err
	})
}

// find looks a volume up by name.
func (v volumes) find(s *session, name string) (vol golibvirt.StorageVol, there bool, err error) {
	vol, err = read(s, "look up volume", func(l *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
		return l.StorageVolLookupByName(v.pool, name)
	})
	if hasCode(err, golibvirt.ErrNoStorageVol) {
		return golibvirt.StorageVol{}, false, nil
	}
	return vol, err == nil, err
}

// describe reads what libvirt knows of a volume.
func (v volumes) describe(s *session, vol golibvirt.StorageVol) (d libvirtxml.StorageVolume, err error) {
	text, err := read(s, "read volume", func(l *golibvirt.Libvirt) (string, error) { return l.StorageVolGetXMLDesc(vol, 0) })
	if err == nil {
		err = d.Unmarshal(text)
	}
	return d, err
}

func (v volumes) free(s *session) (int64, error) {
	n, err := read(s, "read pool", func(l *golibvirt.Libvirt) (uint64, error) {
		_, _, _, available, err := l.StoragePoolGetInfo(v.pool)
		return available, err
	})
	return int64(n), err
}

// refresh lets libvirt see what changed in the pool behind its back. It refuses while volumes
// are being made, and what it knows is as good as it was then.
func (v volumes) refresh(s *session) bool {
	return s.do("refresh pool", readBudget, 0, func(l *golibvirt.Libvirt) error { return l.StoragePoolRefresh(v.pool, 0) }) == nil
}

// create makes a volume, after its labelled step.
func (v volumes) create(s *session, step string, d libvirtxml.StorageVolume) (vol golibvirt.StorageVol, err error) {
	if v.block {
		d.Target.Format = nil // a device has none
	}
	text, err := d.Marshal()
	if err != nil {
		return vol, backends.Wrap(backends.ErrPermanent, "create volume", err, "the volume %s cannot be described", d.Name)
	}
	err = v.change(s, step, "create volume", func(l *golibvirt.Libvirt) error {
		vol, err = l.StorageVolCreateXML(v.pool, text, 0)
		return err
	})
	return vol, err
}

// plain describes a volume of size bytes that holds a file of ours.
func plain(name string, size int64, mode string) libvirtxml.StorageVolume {
	return libvirtxml.StorageVolume{
		Name:     name,
		Capacity: &libvirtxml.StorageVolumeSize{Unit: "B", Value: uint64(size)},
		Target: &libvirtxml.StorageVolumeTarget{
			Format:      &libvirtxml.StorageVolumeTargetFormat{Type: "raw"},
			Permissions: &libvirtxml.StorageVolumeTargetPermissions{Mode: mode},
		},
	}
}

func (v volumes) remove(s *session, x piece) error {
	return v.delete(s, x.kind+".remove", x.vol)
}

// delete removes a volume; that it is gone already is no error.
func (v volumes) delete(s *session, step string, vol golibvirt.StorageVol) error {
	return v.change(s, step, "remove volume", func(l *golibvirt.Libvirt) error {
		err := l.StorageVolDelete(vol, 0)
		if hasCode(err, golibvirt.ErrNoStorageVol) {
			return nil
		}
		return err
	})
}

// busyWait is how long a pool may be busy before the call gives up; the agent tries again.
const busyWait = 20 * time.Second

// change makes a call that changes the pool, one at a time, and waits while the pool or a
// volume is busy with something else.
func (v volumes) change(s *session, step, op string, f func(*golibvirt.Libvirt) error) error {
	if err := backends.Step(s.ctx, step); err != nil {
		return err
	}
	select {
	case v.b.volumes.changing <- struct{}{}:
	case <-s.ctx.Done():
		return backends.Wrap(backends.ErrTransient, op, s.ctx.Err(), "stopped while another volume was being made or removed")
	}
	defer func() { <-v.b.volumes.changing }()
	for began := time.Now(); ; {
		err := s.do(op, writeBudget, grace, f)
		if !busy(err) || time.Since(began) > busyWait {
			return err
		}
		select {
		case <-s.ctx.Done():
			return err
		case <-time.After(pollEvery):
		}
	}
}

// busy reports whether the daemon refused because something else is under way in the pool.
// There are no codes for it. Source: src/storage/storage_driver.c of libvirt.
func busy(err error) bool {
	var e golibvirt.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, text := range []string{"has asynchronous jobs running", "is still being allocated", "is still in use"} {
		if strings.Contains(e.Message, text) {
			return true
		}
	}
	return false
}

func (v volumes) seedIs(s *session, name string, iso []byte) (bool, error) {
	vol, there, err := v.find(s, seedName(name))
	if err != nil || !there {
		return false, err
	}
	have, err := v.download(s, vol, len(iso))
	return err == nil && bytes.Equal(have, iso), ignoreAnswer(err)
}

// ignoreAnswer drops what the daemon says of a volume that cannot be read: it is made anew.
func ignoreAnswer(err error) error {
	if isAnswer(err) {
		return nil
	}
	return err
}

func (v volumes) writeSeed(s *session, name string, iso []byte) error {
	vol, err := v.room(s, seedName(name), "seed", int64(len(iso)))
	if err != nil {
		return err
	}
	return v.fill(s, "seed.write", vol, iso)
}

// room returns a volume of at least size bytes, making one where none is there or it is too
// small.
func (v volumes) room(s *session, name, kind string, size int64) (golibvirt.StorageVol, error) {
	vol, there, err := v.find(s, name)
	if err != nil {
		return vol, err
	}
	if there {
		d, err := v.describe(s, vol)
		if err == nil && d.Capacity != nil && d.Capacity.Unit == "bytes" && int64(d.Capacity.Value) >= size {
			return vol, nil
		}
		if err := v.delete(s, kind+".remove", vol); err != nil {
			return vol, err
		}
	}
	return v.create(s, kind+".create", plain(name, size, "0600"))
}

func (v volumes) attach(s *session, name string, base images.Base) (at attachment, err error) {
	kind := "file"
	if v.block {
		kind = "block"
	}
	at.root = diskSource{kind: kind, format: v.format("qcow2")}
	at.seed = diskSource{kind: kind, format: "raw"}
	for volume, to := range map[string]*string{v.disk(name): &at.root.path, seedName(name): &at.seed.path} {
		path, there, err := v.path(s, volume)
		if err != nil {
			return at, err
		}
		if !there {
			return at, backends.Errorf(backends.ErrTransient, "define domain", "the volume %s vanished while its guest was being made", volume)
		}
		*to = path
	}
	if !v.block {
		at.root.backing = &diskSource{kind: kind, path: base.Path, format: base.Format}
	}
	return at, nil
}

// path is where a volume is on the hypervisor.
func (v volumes) path(s *session, name string) (path string, there bool, err error) {
	vol, there, err := v.find(s, name)
	if err != nil || !there {
		return "", false, err
	}
	path, err = read(s, "read volume", func(l *golibvirt.Libvirt) (string, error) { return l.StorageVolGetPath(vol) })
	return path, err == nil, err
}
