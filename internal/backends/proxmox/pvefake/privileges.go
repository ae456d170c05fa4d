package pvefake

import "slices"

// The privileges of Proxmox VE, from PVE::AccessControl and the recorded
// answers of /access/permissions. VM.Monitor went with version 9, which split
// it into the VM.GuestAgent ones.
var (
	privileges = []string{
		"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit",
		"Group.Allocate", "Mapping.Audit", "Mapping.Modify", "Mapping.Use", "Permissions.Modify",
		"Pool.Allocate", "Pool.Audit", "Realm.Allocate", "Realm.AllocateUser",
		"SDN.Allocate", "SDN.Audit", "SDN.Use",
		"Sys.AccessNetwork", "Sys.Audit", "Sys.Console", "Sys.Incoming", "Sys.Modify", "Sys.PowerMgmt", "Sys.Syslog",
		"User.Modify",
		"VM.Allocate", "VM.Audit", "VM.Backup", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU",
		"VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.HWType", "VM.Config.Memory",
		"VM.Config.Network", "VM.Config.Options", "VM.Console", "VM.Migrate", "VM.PowerMgmt",
		"VM.Snapshot", "VM.Snapshot.Rollback",
	}
	privileges8 = []string{"VM.Monitor"}
	privileges9 = []string{
		"VM.GuestAgent.Audit", "VM.GuestAgent.FileRead", "VM.GuestAgent.FileSystemMgmt",
		"VM.GuestAgent.FileWrite", "VM.GuestAgent.Unrestricted", "VM.Replicate",
	}
)

// Privileges lists every privilege that the version knows, sorted.
func Privileges(v Version) []string {
	out := slices.Concat(privileges, privileges9)
	if v == V8 {
		out = slices.Concat(privileges, privileges8)
	}
	slices.Sort(out)
	return out
}

// MinimalPrivileges is what a client needs that clones, configures, starts,
// reads and deletes VMs and uploads and deletes seeds: the recorded role that
// was enough, with Datastore.Allocate to delete ISOs and Sys.Audit on the
// nodes.
func MinimalPrivileges(v Version) []Grant {
	agent := "VM.GuestAgent.Audit"
	if v == V8 {
		agent = "VM.Monitor"
	}
	return []Grant{{Path: "/", Privileges: []string{
		"VM.Clone", "VM.Allocate", "VM.Audit", "VM.PowerMgmt", "VM.Config.CPU", "VM.Config.Memory",
		"VM.Config.Options", "VM.Config.Network", "VM.Config.CDROM", "VM.Config.Disk", agent,
		"Datastore.Allocate", "Datastore.Audit", "Datastore.AllocateSpace", "Datastore.AllocateTemplate",
		"SDN.Use", "Sys.Audit",
	}}}
}
