// Package agent is the program on a host: it takes assignments from the bus, keeps them on
// disk, makes them real through one backend, and reports what it sees.
//
// It imports internal/bus, internal/backends with the backends that are built in, and
// internal/secret. cmd/agent imports it; nothing else does.
//
// # Parts
//
//   - [Config] is agent.yaml, read strictly.
//   - The state directory holds who this agent is (identity.json), what it was told
//     (record.log) and a lock, so that two agents never share it.
//   - decide is the heart: a pure function from what is wanted, what was seen and the time
//     to the next action. Everything else carries actions out.
//   - One goroutine drives one uid; backend calls of all of them run in a few shared slots.
//
// # Ordering
//
// An assignment is on disk before it is acked, and acked before it is finished. For one uid
// the document with the higher stream sequence wins; a lower sequence or generation is
// never taken. Calls to the backend for one uid follow one another. A newer document ends
// the call in flight.
//
// # What deletes
//
// Only a recorded tombstone that names the uid. A record that was lost, a listing that
// lacks something, a stream that is empty or a coordinator that is silent never do.
//
// # Blocking
//
// [Open] touches the disk only. [Agent.Run] returns when its context ends or when it finds
// that it talks to another installation. Instances stay as they are.
package agent
