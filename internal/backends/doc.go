// Package backends is the contract between an agent and whatever runs proxies for it,
// with the logic that every backend shares: error classes, marks, instance names, labelled
// steps, decorators for spans, metrics and logs.
//
// It imports the standard library, OpenTelemetry and internal/secret; it does not know
// NATS, the coordinator or any concrete backend. One package below it for each backend,
// and backendtest, the conformance suite that each of them passes. nocloud, squid and
// images are shared by backends.
//
// # Ordering and blocking
//
// The agent calls Ensure and Delete for one uid one after another, never both at once, and
// for different uids concurrently. List, Get, Offer and Check may run beside anything.
// Every call ends soon after its context does. A backend returns an error once; it never
// retries above its transport, for the agent owns the backoff.
package backends
