// Package coordinator runs the deciding part of a fleet: it follows what people ask for
// and what hosts report, lets the pure core decide, and carries its commands out.
//
// It imports internal/bus and the packages below it; no backend and no agent.
//
// # Roles
//
// Any number of coordinators run; one leads, the others stand by and write nothing. All of
// them follow the streams into a model. A new leader takes the lease, rewrites the fence,
// waits until its model has what is stored behind it, and acts then. A leader that loses the
// lease or its fence steps down: its model, which counts on decisions that were refused,
// dies with its term, and it stands by with a new one. There is one way in which a model comes
// about, and it is the same at the first start and at a takeover.
//
// # Goroutines
//
// [Coordinator.stand] runs for as long as a model lives: [replica] follows the streams and
// [decider] alone owns the model. A [term] is one run group beside them, for as long as this
// coordinator leads. The beat listener and the tickers only send inputs; the decider commits
// one batch after another; [inventory] alone writes buckets; [crier] alone publishes events;
// [chores] manage consumers; [tidier] removes states that have served; [api] answers people.
// Inputs block their senders while a batch is in flight, so what comes together is decided
// together; a single input is decided at once.
package coordinator
