// Package images brings base images to a directory on this host, once for everybody who
// waits for one, and lets nothing become a base that was not checked.
//
// It imports internal/backends for error classes and labelled steps, and runs two programs:
// qemu-img, under prlimit.
//
// # What stands in the directory
//
//	pf-base-<digest>.qcow2            a base, named by 24 hex digits of its digest: its
//	                                  content never changes and its name never moves on
//	.proxyfleet/base-<digest>.json    what is known of it, written before the base appears
//	.proxyfleet/pin-<entry>.json      the digest that an entry without one was pinned to
//	.proxyfleet/part-<entry>          a download under way, locked by whoever writes it
//	.proxyfleet/part-<entry>.json     the validator to resume it with
//	.proxyfleet/part-<entry>.unpacked what was compressed, while it is unpacked and checked
//	.proxyfleet/upload-<base>         locked by whoever brings a base on to elsewhere
//	.proxyfleet/upload-<base>.raw     what the base is turned into on its way
//
// A base appears by rename, after it was verified and synced, so one that is there is
// whole. Two agents may share a directory: the lock on the partial file serialises them.
// Only [Remove] removes a base. What was given up on the way to one is a [Rest]: it goes when
// nobody has it locked and nobody has asked for it for an hour.
//
// # Blocking
//
// [Cache.Fetch] returns when the base is there or its context ends. One download per entry
// is under way, however many wait; it goes on until the last of them has left.
package images
