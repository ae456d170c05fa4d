package libvirt

import (
	golibvirt "github.com/digitalocean/go-libvirt"

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
