// Package backendtest is the conformance suite that every backend passes. A backend's own
// tests give it a [Harness], which declares what the suite cannot know: how to make a host,
// how to look at it behind the backend's back, how to put foreign things there.
//
//	var harness = backendtest.Harness{…}
//
//	func TestMain(m *testing.M)        { backendtest.Main(m, harness) }
//	func TestConformance(t *testing.T) { backendtest.Run(t, harness) }
//
// It imports the contract, goleak and ulid.
//
// # Steps
//
// The suite finds out a backend's labelled steps by running it once with
// [backends.WithSteps], and then, for each of them, starts the test binary again, which
// runs the same call and kills itself with SIGKILL right before that side effect; another
// backend is opened on what is left, and must finish. In the same way it makes each step
// fail, and ends the context at each step.
//
// # Hosts
//
// Cases do not assume an empty host: each has proxies, uids and an installation of its
// own, so that a costly host may be shared. They run one after another.
//
// # What every case checks
//
// No log line, error, progress or check has the password that the case used. Everything
// that [Harness.Traces] sees is in the backend's listing. Each call ends within
// [Harness.Patience].
package backendtest
