package libvirt

import (
	"path"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
)

// ownDisk refuses to define a domain anew whose disk somebody made another, by a snapshot
// or by copying it: the definition would go back to the one before it.
func (w *work) ownDisk(s *session) error {
	text, err := read(s, "read domain", func(l *golibvirt.Libvirt) (string, error) { return l.DomainGetXMLDesc(w.dom, 0) })
	if err != nil {
		return err
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return backends.Wrap(backends.ErrTransient, "read domain", err, "the description of domain %s cannot be read", w.name)
	}
	now := rootFile(d)
	// Only the last part is compared: a pool may have been moved with everything in it.
	if base := path.Base(now); now == "" || base == w.name+".qcow2" || base == w.name+".raw" {
		return nil
	}
	return backends.Errorf(backends.ErrConflict, "look at disk",
		"the disk of proxy %s is %s now, by a snapshot or a copy that somebody made, and is left to you; merge it while the guest runs (virsh blockcommit %s %s --active --shallow --pivot), or delete the proxy",
		w.r.Proxy, now, w.name, rootTarget)
}

// rootFile is the file or device of a domain's root disk; empty where it has none.
func rootFile(d libvirtxml.Domain) string {
	if d.Devices == nil {
		return ""
	}
	for _, disk := range d.Devices.Disks {
		switch {
		case disk.Target == nil || disk.Target.Dev != rootTarget || disk.Source == nil:
		case disk.Source.File != nil:
			return disk.Source.File.File
		case disk.Source.Block != nil:
			return disk.Source.Block.Dev
		}
	}
	return ""
}
