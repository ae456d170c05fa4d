package agent

import (
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

// action is what to do next for one uid.
type action string

const (
	actWait    action = "wait"    // until the time given, or until something wakes the driver
	actRead    action = "read"    // Backend.Get
	actEnsure  action = "ensure"  // Backend.Ensure
	actProbe   action = "probe"   // ask the proxy
	actDelete  action = "delete"  // Backend.Delete
	actConfirm action = "confirm" // wait until the server stored that it is gone
	actForget  action = "forget"  // drop it from the record
)

// policy is the part of the configuration that decisions need. spread is a source of
// numbers 0 ≤ n < 1.
type policy struct {
	RetryMin, RetryMax time.Duration
	Probe              bool
	ProbeInterval      time.Duration
	ProbeFailures      int
	Spread             func() float64
}

// decide is the next action for what is wanted, given what was seen, and until when to
// wait; the zero time is "until something happens". It changes nothing.
func decide(w bus.Assignment, o observed, p policy, now time.Time) (action, time.Time) {
	if w.Tombstone() {
		switch {
		case o.Stored:
			return actForget, time.Time{}
		case now.Before(o.RetryAt):
			return actWait, o.RetryAt
		case o.Gone:
			return actConfirm, time.Time{}
		}
		return actDelete, time.Time{}
	}
	if o.Stale {
		// What is there is not known: nothing is made or mended on a guess.
		if now.Before(o.NextRead) {
			return waitOrProbe(w, o, p, now, o.NextRead)
		}
		return actRead, time.Time{}
	}
	if !o.satisfies(w) {
		if now.Before(o.RetryAt) {
			return waitOrProbe(w, o, p, now, o.RetryAt)
		}
		return actEnsure, time.Time{}
	}
	if w.Desired == bus.DesiredStopped {
		return actWait, time.Time{}
	}
	if o.comingUp() {
		if now.Before(o.NextRead) {
			return waitOrProbe(w, o, p, now, o.NextRead)
		}
		return actRead, time.Time{}
	}
	return waitOrProbe(w, o, p, now, time.Time{})
}

// waitOrProbe waits until at (zero: for ever) or until a probe is due, whichever is first.
func waitOrProbe(w bus.Assignment, o observed, p policy, now, at time.Time) (action, time.Time) {
	if !p.Probe || w.Desired != bus.DesiredRunning || o.Status != backends.StatusRunning || len(o.Addresses) == 0 {
		return actWait, at
	}
	if !now.Before(o.NextProbe) {
		return actProbe, time.Time{}
	}
	if at.IsZero() || o.NextProbe.Before(at) {
		at = o.NextProbe
	}
	return actWait, at
}
