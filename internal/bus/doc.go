// Package bus is everything that proxyfleet puts on NATS: subjects, streams, buckets,
// the documents on the wire, client options, the lease and the fence of the leader, and the
// link of a host.
//
// It imports nats.go, nkeys, orbit.go's jetstreamext, oklog/ulid, the
// propagator of OpenTelemetry and the standard library, and nothing of proxyfleet but
// internal/secret. Coordinators and agents import it; it
// knows neither.
//
// # Ordering
//
// Every stream but FLEET_EVENTS keeps the last message of a subject. A reader sees the
// newest document of a subject, not each one; it must therefore be level-triggered.
// Within a subject documents arrive in the order they were stored. Across subjects of
// one stream they do as well, but a conflated document is seen at its newest place.
//
// # Acknowledgements and back-pressure
//
// A host's assignments are pulled at most [MaxPull] at a time, recorded by the caller
// with one fsync, then acked together; an ack says "recorded", never "done". States are
// published asynchronously, one in flight per subject, the newest wins, many as atomic batches; they are held back
// while the name is another host's ([HostLink.OnAdmission]). The leader's
// decisions are stored in order, where there are many as an atomic batch (see
// [Leader.Commit]); the writes of one call are in flight at a time, and those whose outcome is
// not known are repeated until it is.
//
// # The fence
//
// A message under [Names.Fence], and one in each bucket, names the leader. It is rewritten
// at a takeover only ([Fleet.Lead]), and every write of a [Leader] expects its sequence, so
// that the server itself refuses a leader that was replaced. The lease only tells standbys
// that somebody leads; nothing depends on its timing but how soon another takes over.
//
// # Blocking
//
// [Connect] does not wait for a server. Everything that takes a context ends with it.
// Handlers given to [Fleet.Follow] and [HostLink.Assignments] run on one goroutine each,
// one after another; while a handler runs the server sends at most what one or two pulls
// asked for before.
package bus
