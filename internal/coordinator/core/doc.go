// Package core decides what the coordinator does. [Model.Step] takes what happened and
// returns commands; it has no clock, no network and no randomness of its own: time and
// seed come with the input. Its tests are transcripts under testdata that people can read.
//
// It imports internal/bus for document types, and internal/coordinator/intents and
// placement, which are pure as well.
//
// # How it works
//
// The model is fed first with everything stored (intents, ledger, assignments, states),
// then with [CaughtUp]; only from then on it decides. Each event changes tables and marks
// the proxies and hosts that it touches. Once all events of a step are taken in, every
// marked proxy is reconciled: a function of its newest intent, its ledger entry, its state
// and the hosts, whatever order things came in. So cost grows with what changes.
//
// # Ordering
//
// A decision changes the model at once; its [Commit] must be stored before any command
// that follows it is carried out, and commits are stored in order. When one is refused
// because another coordinator leads, the model is thrown away. A commit comes back as
// messages of the assignments stream; the sequences that [Retire] and [ForgetLedger] name
// are learned from them.
//
// # Pools
//
// A member is a proxy whose ledger entry names its pool, and which has no intent of its
// own. Its reconciliation ends with the pool's [roster] counting it as it is now; where that
// made a difference the pool decides anew: [plan], a pure function of numbers and members,
// says what to make, give up and change, and members carry it out by being reconciled.
// Pools are marked as proxies are, and decide after them.
package core
