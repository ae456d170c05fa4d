package libvirt

import (
	"path"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
)

// job is something that somebody has libvirt do with a running guest or its disk, and that
// would end if the guest did: a backup, a copy, a migration.
type job struct {
	name string // empty: there is none
	end  string // how a person ends it
}

// operations and blockJobs are as virsh names them. Source: virDomainJobOperation and
// virDomainBlockJobType in include/libvirt/libvirt-domain.h.
var (
	operations = map[golibvirt.DomainJobOperation]string{
		golibvirt.DomainJobOperationStrSave: "save", golibvirt.DomainJobOperationStrRestore: "restore",
		golibvirt.DomainJobOperationStrMigrationIn: "incoming migration", golibvirt.DomainJobOperationStrMigrationOut: "migration",
		golibvirt.DomainJobOperationStrSnapshot: "snapshot", golibvirt.DomainJobOperationStrSnapshotRevert: "snapshot revert",
		golibvirt.DomainJobOperationStrSnapshotDelete: "snapshot deletion",
		golibvirt.DomainJobOperationStrDump:           "dump", golibvirt.DomainJobOperationStrBackup: "backup",
	}
	blockJobs = map[golibvirt.DomainBlockJobType]string{
		golibvirt.DomainBlockJobTypePull: "block pull", golibvirt.DomainBlockJobTypeCopy: "block copy",
		golibvirt.DomainBlockJobTypeCommit: "block commit", golibvirt.DomainBlockJobTypeActiveCommit: "block commit",
		golibvirt.DomainBlockJobTypeBackup: "backup",
	}
)

// jobOf finds the job of a guest that runs.
func jobOf(s *session, dom golibvirt.Domain) (j job, err error) {
	err = s.do("read jobs", readBudget, 0, func(l *golibvirt.Libvirt) error {
		kind, params, err := l.DomainGetJobStats(dom, 0)
		if err != nil {
			return gone(err)
		}
		if golibvirt.DomainJobType(kind) != golibvirt.DomainJobNone {
			j = job{named(operations, golibvirt.DomainJobOperation(number(params, golibvirt.DomainJobOperationStr))), "virsh domjobabort " + dom.Name}
			return nil
		}
		found, kind, _, _, _, err := l.DomainGetBlockJobInfo(dom, rootTarget, 0)
		if err == nil && found == 1 {
			j = job{named(blockJobs, golibvirt.DomainBlockJobType(kind)), "virsh blockjob " + dom.Name + " " + rootTarget + " --abort"}
		}
		return gone(err)
	})
	return j, err
}

func named[T comparable](names map[T]string, of T) string {
	if name := names[of]; name != "" {
		return name
	}
	return "job"
}

// undisturbed refuses what would end a job of the guest, or fail because of it.
func undisturbed(s *session, dom golibvirt.Domain, proxy string) error {
	j, err := jobOf(s, dom)
	if err != nil || j.name == "" {
		return err
	}
	return backends.Errorf(backends.ErrTransient, "look for jobs",
		"libvirt is at a %s of the guest of proxy %s, which is waited for; nothing was changed. To end it at once: %s", j.name, proxy, j.end)
}

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
