// Package squid renders Squid's configuration and password file for one proxy, closed by
// default. Backends put the files where a Squid of version 5 or 6 reads them.
//
// It imports the contract, and packages egress and passwd. Rendering is pure: the same
// parameters give the same bytes.
//
// # Who may use the proxy
//
// Where credentials and client networks are both given, a client needs both. Without either
// nothing is rendered. A client outside the networks gets 403, one without the right
// credentials 407, before anything is resolved for it.
//
// # Where it may go
//
// See package egress. Squid compares every address that a name resolves to, and keeps the
// answer for a minute at least, so that it dials what it compared.
//
// A guest's own addresses are known to the guest only. It writes them, one a line, to a file
// that [Params.OwnAddresses] names, before Squid starts; [DropIn] is a systemd drop-in
// that does so.
package squid
