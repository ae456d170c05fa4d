// Package local runs proxies as processes of this host: forward proxies of our own, one
// child process for each uid, which outlive the agent and notice nothing when it ends.
//
// It imports the contract, packages egress and passwd, goproxy, renameio and x/sys. It runs
// on Linux only.
//
// # Files
//
// Everything of a uid is in Config.State, under its instance name:
//
//	pf-….json  the state: mark, generation, desired, address and port. Made first, removed last
//	pf-….conf  what the child reads: mark, rules, hashed password
//	pf-….lock  the child holds a lock on it for as long as it lives; has the mark
//	pf-….run   what the child says of itself: its pid and the configuration that it applied
//	pf-….log   what the child logs; no requests. Past 1 MiB it becomes pf-….log.1
//
// The first three carry the mark, and one that lacks ours makes the whole name a Conflict.
// They are replaced by rename, so that none is ever half-written.
//
// # Which process is ours
//
// A pid is never taken from a file: the kernel says who holds the lock (fcntl F_GETLK), so a
// pid that was reused cannot be mistaken. Signals go through a pidfd that was opened
// between two such answers, to a process whose command line names the uid. A child takes
// the lock before it does anything else, ends if another holds it, and ends soon after its
// lock file is gone.
//
// # Changes
//
// The child reads its configuration again on SIGHUP, without dropping a connection; a request
// that comes after Ensure has returned meets the new rules. Tunnels that stand keep on.
//
// # A host without systemd's help
//
// Children have a session of their own and no descriptor of the agent's but their log, yet they
// stay in its cgroup: a systemd unit of the agent needs KillMode=process. After a reboot
// they are gone, their state is not, and the agent starts them again.
package local
