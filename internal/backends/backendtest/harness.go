package backendtest

import (
	"log/slog"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

// Harness is what the suite cannot know of a backend. Functions marked optional may be nil
// if Differs says why.
type Harness struct {
	// NewHost prepares a host for one case, or gives one that cases share, and removes it
	// when t ends. The text finds it again, also in another process: a directory, a URL.
	NewHost func(t testing.TB) (host string)

	// Open opens a backend on the host. It is called several times for one host: an agent
	// that restarts, or another installation beside ours. Everything is logged to log.
	Open func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error)

	// Request is a valid request for ref, desired running, generation 1, port 0. The suite
	// sets credentials of its own.
	Request func(ref backends.Ref) backends.Request

	// Traces looks at the host without the backend and names everything that exists for
	// ref's uid: files, domains, volumes, processes.
	Traces func(t testing.TB, host string, ref backends.Ref) []string

	// Plants put a thing that is not ours where the backend would put its own, by the kind of
	// thing: "instance", "volume", …. There is at least "instance".
	Plants map[string]Plant

	// Oversize turns a valid request into one that the host has no room for. Optional
	// (DiffersOversize).
	Oversize func(req *backends.Request)

	// Unread makes the instance of ref unreadable without removing it; mend undoes that.
	// Optional (DiffersUnread).
	Unread func(t testing.TB, host string, ref backends.Ref) (mend func())

	// Crash ends the running instance of ref behind the backend's back. Optional
	// (DiffersCrash).
	Crash func(t testing.TB, host string, ref backends.Ref)

	// Vanish removes the instance of ref behind the backend's back, and leaves secondary
	// resources where it can. Optional (DiffersVanish).
	Vanish func(t testing.TB, host string, ref backends.Ref)

	// Stall makes everything behind the backend hang until resume is called. Optional
	// (DiffersStall).
	Stall func(t testing.TB, host string) (resume func())

	// Lockout makes the host refuse the backend's credentials until restore is called.
	// A backend without credentials leaves it nil.
	Lockout func(t testing.TB, host string) (restore func())

	// Changes alter fields of a valid request that the suite cannot know how to: machineType
	// and diskGiB, for a backend that has these in place.
	Changes map[backends.Field]func(req *backends.Request)

	// Loopback says that instances may have loopback addresses.
	Loopback bool

	// Patience is how long one call may take. Default 10 s.
	Patience time.Duration

	// Promptness is how soon after its context a call ends. Default 2 s.
	Promptness time.Duration

	// Differs gives a reason for each thing that the backend does not have.
	Differs map[Difference]string
}

// Plant puts a thing under the name that ref's uid gives, carrying mark where it can; a zero
// mark is a thing that nobody marked. look describes the thing as it is now, so that a
// change shows; it says so when the thing is gone. The thing is removed when t ends.
type Plant func(t testing.TB, host string, ref backends.Ref, mark backends.Mark) (look func() string)

// Difference names something that a backend may lack.
type Difference string

const (
	DiffersOversize Difference = "oversize"
	DiffersUnread   Difference = "unread"
	DiffersCrash    Difference = "crash"
	DiffersVanish   Difference = "vanish"
	DiffersStall    Difference = "stall"
	// DiffersForeignMark says that a planted thing cannot carry another owner's mark.
	DiffersForeignMark Difference = "foreign mark"
)

func (h Harness) withDefaults() Harness {
	if h.Patience == 0 {
		h.Patience = 10 * time.Second
	}
	if h.Promptness == 0 {
		h.Promptness = 2 * time.Second
	}
	return h
}

// check reports what is missing from the harness and not declared.
func (h Harness) check(t *testing.T) {
	t.Helper()
	if h.NewHost == nil || h.Open == nil || h.Request == nil || h.Traces == nil || h.Plants["instance"] == nil {
		t.Fatal("the harness needs NewHost, Open, Request, Traces and Plants[\"instance\"]")
	}
	for d, missing := range map[Difference]bool{
		DiffersOversize: h.Oversize == nil,
		DiffersUnread:   h.Unread == nil,
		DiffersCrash:    h.Crash == nil,
		DiffersVanish:   h.Vanish == nil,
		DiffersStall:    h.Stall == nil,
	} {
		if missing && h.Differs[d] == "" {
			t.Errorf("the harness lacks %q and Differs does not say why", d)
		}
		if !missing && h.Differs[d] != "" {
			t.Errorf("the harness has %q, yet Differs says: %s", d, h.Differs[d])
		}
	}
	for d, reason := range h.Differs {
		t.Logf("differs in %q: %s", d, reason)
	}
}
