// Package fleettest plays the rest of a fleet for tests of coordinators: hosts whose
// instances cost nothing, people who ask for proxies and pools, and a storm of failures
// among them. It speaks to coordinators over NATS only, so that it tries processes and
// coordinators in the test's own process alike.
//
// It imports internal/bus and internal/bus/bustest; only tests import it.
package fleettest
