// Package pvefake is a Proxmox VE cluster that lives in a test: an HTTPS API
// with state behind it, strict enough that a client which passes here has
// sent nothing a real node would refuse.
//
// # Why it can be trusted
//
// Every request is first held against Proxmox's own API schema (parameter
// names, types, formats, limits, what is required, the permission tree), read
// at run time from the directory that [FindSchema] finds; the schema is not
// part of this repository. What the schema cannot say (texts, statuses, which
// call answers at once and which one only in its task) was taken from recorded
// answers of Proxmox VE 9.2, and the package's own tests replay those
// recordings. A path the schema has but this package does not model answers
// 501 and fails the test that asked for it; it is never quietly accepted.
//
// Not recorded, and so only as good as the reading of Proxmox's sources: several
// nodes and what one answers for another, migration, HA, protection, a thin
// pool's volumes, waiting for a config task, a worker that dies, and the answers
// of version 8 where the schemas do not differ. Limits of bandwidth, quorum and
// snapshots are not modelled; a storage is full by what is written, not by what
// is promised.
//
// # Use
//
//	c := pvefake.New(t, pvefake.Options{})
//	secret := c.AddToken("fleet@pve", "agent", pvefake.MinimalPrivileges(c.Version())...)
//	c.AddVM(pvefake.VMSpec{ID: 9000, Node: "pve1", Name: "debian", Template: true})
//	client := newClient(c.URL("pve1"), c.CAPEM(), "fleet@pve!agent", secret)
//
// Faults are injected by [Cluster.OnRequest] (one request: delay, cut, answer
// something else, change the state around it), [Cluster.InjectTask] (one task:
// fail, warn, hang) and by methods that change the state: [Cluster.NodeDown],
// [Cluster.MoveVM], [Cluster.SetLock], [Cluster.SetStorage] and so on.
// [Cluster.Count] and [Cluster.Requests] bound how much a client asks.
//
// # Time
//
// Everything that takes time on a node (a clone, the 10 s wait for a lock
// file, the 3 s before a 401, the guest's boot) takes that time divided by
// Options.Speed, by default 200. Inside testing/synctest use Options.InProcess
// with Speed 1 and [Cluster.RoundTripper]: no sockets, exact times.
//
// # Order and blocking
//
// One mutex guards the whole cluster. Handlers and task workers hold it while
// they work and give it up while they wait, so every step that a node does
// under one lock is one step here. Exported methods take the mutex; hooks run
// without it and may call them. New's clean-up ends every task.
//
// It imports only the standard library and may be imported by tests alone.
package pvefake
