// Package gcp is the backend for one Google Cloud project: each proxy is a Compute Engine
// instance of its own, with the boot disk that was made for it and, where configured, a
// reserved address and a firewall rule.
//
// It imports the contract, Google's REST clients, nocloud (for the documents that cloud-init
// reads), squid and told.
//
// # Whose is it
//
// Everything that is made for a uid has one name, that of [backends.InstanceName]; a second
// firewall rule for IPv6 has "-v6" after it. Instances and disks carry the mark in labels, from
// the call that makes them on; addresses and firewall rules, which cannot get labels in that call
// or have none, carry it in their description. Everything under the name is read before
// anything is made or removed, in all zones, and what lacks the mark of this owner and uid is a
// Conflict: nothing is touched then.
//
// # One insert, never two
//
// GCE accepts an insert and lets it fail minutes later, and names are unique in a zone only. So
// an insert is an attempt with a number: it is written to the agent's state directory before the
// call, its requestId is the UUIDv5 of uid, zone and number, and its operation is written down as
// soon as it is known and followed to its end, by the next agent if need be. An attempt whose
// answer was lost is sent again with the same requestId, which GCE answers with the operation of
// the first. Only after an attempt is known to have failed is the next one made, maybe in another
// zone. Losing the records is no harm as long as no insert is under way: instances are found by
// their name.
//
// # Order of making
//
// quota, leftovers of earlier attempts, firewall rules, then for each zone until one has room:
// reserved address of its region, record, insert, record of the operation. Deletion: what may
// still be coming is waited for, then instances, disks, addresses, firewall rules, record. Each
// removal ends when its operation has.
//
// # What cannot be seen
//
// A listing names the zones that did not answer. What may be there is not gone: Get is then
// Transient, Delete does not say that nothing is left, and the listing has no leftovers.
//
// # What only the guest knows
//
// A proxy must not lead to itself, and its external address is on none of its network cards. A
// script in the guest asks the metadata server before each start of Squid, and follows changes;
// Squid does not start without.
//
// # Retries and secrets
//
// Google's clients retry nothing here: their call options are emptied, and the agent alone waits.
// Their wire log, which has tokens and user-data in it, is off whatever
// GOOGLE_SDK_GO_LOGGING_LEVEL says; what takes its place is a line and a span event for each
// request, with method, path, status and time.
package gcp
