// Package gcpfake is Google Compute Engine in a test: an HTTP server with a project's state
// behind it, strict enough that a client which passes here has sent nothing that the real
// service would refuse. Google's own Go clients talk to it.
//
// # Why it can be trusted
//
// Every request is held against Google's discovery documents (paths, parameters, the names,
// types, formats, patterns and enums of everything in a body, what is required), and so is every
// answer. discovery.json is a copy of their part that is modelled, without the prose; a test
// holds it against the documents in the module google.golang.org/api. A path that the copy lacks
// fails the test that asked for it. What the documents do not say (texts, reasons, what is judged
// at once and what only when the operation ends) is taken from Google's documentation and from
// answers that users of the API have published; each place names its source or says what it is.
//
// Stricter than the service: one requestId serves one request only, whatever the method, and
// filters are a small part of what Google reads. Not modelled: templates, groups, regional and
// blank disks, snapshots, reservations, live migration, reserved addresses of IPv6, and
// rights of single resources. An image's family can be had at once; Google takes a while.
//
// # Use
//
//	s := gcpfake.New(t, gcpfake.Options{})
//	c, err := compute.NewInstancesRESTClient(ctx, option.WithEndpoint(s.URL()), option.WithoutAuthentication())
//
// The project "fleet-test" has three zones, the network "default", the usual machine types and
// the images of debian-cloud and ubuntu-os-cloud. Trouble is made by methods that change the
// state ([Server.StockOut], [Server.SetQuota], [Server.Unreachable], [Server.Deny], [Server.Preempt],
// [Server.LimitRate]), by the end of operations ([Server.SetFate], [Server.HoldOperations]), and
// by [Server.OnRequest] for one request: delay, cut the connection before or after the effect,
// answer something else. [Server.Count] and [Server.Requests] say what was asked and sent.
//
// Two things retry by themselves: net/http sends a GET again when an idle connection was cut, and
// Google's clients repeat calls that got 503 or 504 unless their CallOptions are changed.
//
// # Time
//
// An operation takes Options.Latency, more by its fate, or until a hold is released. Nothing runs
// meanwhile: whoever looks next finds what is due done. With Options.InProcess and
// [Server.Client] there are no sockets, so that testing/synctest gives exact times.
//
// # Order and blocking
//
// One mutex guards the state; a call holds it from its authentication to its answer, and gives
// it up only in the wait methods. Operations on one resource end in the order in which they came.
// Hooks run without the mutex and may call every method.
//
// It imports only the standard library and may be imported by tests alone.
package gcpfake
