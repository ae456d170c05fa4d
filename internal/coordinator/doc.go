// Package coordinator runs the deciding part of a fleet: it follows what people ask for
// and what hosts report, lets the pure core decide, and carries its commands out.
//
// It imports internal/bus and the packages below it; no backend and no agent.
//
// # Roles
//
// Any number of coordinators run; one leads, the others stand by and write nothing. A
// leader that loses the lease or its fence steps down and stands by again. A new leader
// takes the lease, rewrites the fence, reads every stream from its first sequence to its
// end, and acts then: a standby keeps no model of its own: reading everything anew takes
// about as long as a lease lives, and there is no second way to keep a model right.
//
// # Goroutines
//
// A term is one run group. Followers, the beat listener and the tickers only send inputs;
// [decider] alone owns the model and commits one batch after another; [inventory] alone
// writes buckets; [crier] alone publishes events; [chores] manage consumers; [tidier] removes
// states that have served. Inputs block
// their senders while a batch is in flight, so what comes together is decided together; a
// single input is decided at once.
package coordinator
