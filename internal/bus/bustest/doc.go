// Package bustest is the vocabulary in which tests talk about the bus: a real embedded
// server in the test's own directory, fleets opened on it, and expectations with a
// deadline.
//
// It imports internal/bus and the testing package; only tests import it. Everything that
// it starts is stopped by the test's Cleanup, in reverse order. Nothing is faked: a
// restart stops the server and starts another one on the same store and port.
package bustest
