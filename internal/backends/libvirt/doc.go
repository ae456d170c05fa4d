// Package libvirt makes proxies as virtual machines through a libvirt daemon, on this host
// or on one that is reached by SSH or TLS: a domain with an overlay disk on a cached base
// image, and a NoCloud seed that puts Squid into the guest.
//
// It imports internal/backends, images, nocloud and squid, talks to libvirtd,
// writes into the directory of a storage pool, and runs qemu-img.
//
// # What stands where
//
// N is the instance's name, "pf-" and a hash of the uid.
//
//	domain N                       mark and generation in its metadata, in a namespace of ours
//	<pool>/N.qcow2                 the disk, an overlay on a base of package images
//	<pool>/N.iso                   the seed, readable by root and QEMU only
//	<pool>/.proxyfleet/N.json      the marker: whose these are, written first, removed last
//	<pool>/.proxyfleet/N.<owner>.new   the marker, while it is written
//	<pool>/.proxyfleet/N.nvram     UEFI variables
//	<pool>/.proxyfleet/N.log       the serial console
//
// That is a pool whose directory the agent uses itself. Any other, on another machine or of
// devices, holds the same as volumes, worked through libvirt alone: see the type volumes,
// and docs/images.md for which pool goes which way. Variables and console are then where libvirt
// puts them.
//
// Every one of them is found again by name; what cannot be told by its content yet bears its
// owner in its name, and is removed by [Backend.Tidy]. Whatever bears such a name without our mark is
// somebody else's: nothing is done to it, and the call ends with ErrConflict.
//
// # Ordering and blocking
//
// go-libvirt has no context, and one blocked call blocks its connection. So every operation
// has a connection of its own that lives as long as the operation, with a budget for each
// call; when the budget or the context ends the connection is closed, which ends the call
// and no other's. What changes something is given a second to end by itself first, so that
// its outcome is known. A connection is a unix socket, a TLS connection, or a channel of the
// one SSH client of a host, which is made anew in one place (sshReach.current) and ends only
// when its server is silent. The watcher keeps one connection and reconnects by itself.
//
// Guests are never started by libvirt itself: autostart stays off, and the agent starts
// them from its record.
package libvirt
