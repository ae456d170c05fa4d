// Package pve speaks the HTTP API of Proxmox VE 8 and 9, as far as one backend needs it:
// one method for each endpoint, tasks followed to their end, and errors that keep what the
// server said.
//
// It imports the standard library, OpenTelemetry's API and internal/secret, and knows
// nothing of proxies or marks.
//
// # Endpoints
//
// Any node of a cluster answers for all of it. A [Client] has several addresses and stays
// with the one that answered last. A request goes to the next address when it cannot have
// been carried out: no connection was made, the connection was cut before the request was
// written, or the server said that it could not pass it on (595). What only reads goes to
// the next one after any failure of the transport. Beyond that nothing is retried here.
//
// # Credentials
//
// The token, and the CA or the fingerprints, are files that are read again whenever they
// change. A token is never part of an error, a log line or a span; neither is what a
// request carries.
//
// # Errors
//
// PVE answers with the wrong status for many things: a VM that does not exist is a 500 with
// a text. [Error] keeps status and text, and the predicates beside it know the texts. They
// were taken from PVE 9.2; a text that is not known is no special case.
package pve
