// Package backends is the contract between an agent and whatever runs proxies for it,
// with the logic that every backend shares: error classes, validation, marks, instance
// names, labelled steps, a feed of events, and a decorator for spans, metrics and logs.
//
// It imports the standard library, OpenTelemetry's API and internal/secret; it does not know
// NATS, the coordinator or any concrete backend. There is one package below it for each
// backend, none of which imports another: sim, which makes nothing, is the smallest.
// Shared by backends are egress (where clients may go), passwd (hashes of passwords), squid
// (its configuration), nocloud (seeds of guests), told (what a guest was told) and images (base images). backendtest is
// the conformance suite that each backend passes.
//
// # Ordering and blocking
//
// The agent calls Ensure and Delete for one uid one after another, never both at once, and
// for different uids concurrently. List, Get, Offer and Check may run beside anything.
// Every call ends soon after its context does. A backend returns an error once; it never
// retries above its transport, for the agent owns the backoff.
//
// # Secrets
//
// No error, progress, check or log line of a backend has a password or user-data in it:
// they go to people as they are. The suite listens to all of them.
package backends
