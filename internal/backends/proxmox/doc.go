// Package proxmox is the backend for a Proxmox VE cluster: each proxy is a VM cloned from a
// template, with a NoCloud seed in its CD drive.
//
// It imports the contract, its own client (package pve), nocloud, squid and told.
//
// # Whose VM is it
//
// A VM is ours when three things agree: its name, the mark in its description (installation,
// host id, proxy, uid), and the uid that was asked for. This is read again right before
// every change and every removal, because a VMID may have been reused by somebody else's VM.
// The mark goes into the call that clones, so that no VM of ours is ever without it; while
// a clone runs PVE shows neither name nor description, and then the only evidence is a
// small record in the agent's state directory. Losing it is no harm: the VMID follows from
// the uid, and when the clone has ended the VM has its mark.
//
// A seed's file name is its mark; see seedName.
//
// # Where things are
//
// VMs migrate. No node is kept anywhere: /cluster/resources says where each VM is, in one
// request for everything, which concurrent calls share. That answer tells of existence,
// node, lock and tags at this moment, but of names and power some ten seconds late, so what
// is acted on is read from the VM itself.
//
// # Order of making
//
// record, clone, follow its task, verify the owner, upload the seed, configure, resize,
// write the generation into the mark, start. A VM whose mark has no generation was never
// started and is finished by the next Ensure. Each side effect is announced with
// backends.Step; what was sent and not answered is looked for, never assumed.
//
// # Locks
//
// PVE refuses changes to a VM that has a lock (backup, snapshot, migrate, …). A call waits
// for it for a while and then fails with an error that names the lock; the agent asks
// again. Nothing ever skips a lock.
package proxmox
