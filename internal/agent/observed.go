package agent

import (
	"errors"
	"net/netip"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

const (
	// stable is how long an instance must have lived since it was last made or mended for the
	// next repair to be immediate again.
	stable = 10 * time.Minute
	// addressGrace is how long an address outlives the sources that reported it while the
	// instance runs: a guest agent that restarts, a lease that is renewed.
	addressGrace = 2 * time.Minute
	// recheck is the pause after a failed probe of a proxy that was well before.
	recheck = 5 * time.Second
)

// observed is what the agent knows of one uid. Its methods are the transitions; they are
// pure but for the receiver.
type observed struct {
	// The instance as last read. Stale: something may have happened since.
	Stale      bool
	Exists     bool
	Status     backends.Status
	Reason     string
	Message    string
	Generation uint64 // that it was last brought to
	Addresses  []bus.Address
	NextRead   time.Time // no read before
	Since      time.Time // it has been coming up since then
	LostAt     time.Time // when running without the address it had; zero: it has it
	ReadErr    *bus.Error
	ReadFails  int // in a row

	// The proxy as last probed.
	Ready      bool // it has answered since it was started (has an address, without probes)
	ProbeFails int  // in a row
	ProbeSaid  string
	Healthy    bool // the verdict, and since when
	HealthyAt  time.Time
	NextProbe  time.Time

	// Calls that change.
	Err      *bus.Error // of the last one
	Failures int        // in a row
	Repairs  int        // since it was last stable
	MadeAt   time.Time  // last success
	RetryAt  time.Time  // none before
	Busy     bool       // one in flight that people may see
	Step     string
	Percent  int

	Gone   bool // nothing is left
	Stored bool // and the server knows

	// LastPhase is kept through errors that say nothing about the proxy.
	LastPhase bus.Phase
}

// restored is where a uid begins that was recorded by an earlier session.
func restored(s seen, ok bool) observed {
	o := observed{Stale: true}
	if ok {
		o.LastPhase, o.Generation, o.Addresses = s.Phase, s.Generation, s.Addresses
		o.Ready = s.Phase == bus.PhaseRunning || s.Phase == bus.PhaseDegraded
	}
	return o
}

// wanted starts a new assignment: what failed for the one before does not hold any more.
func (o *observed) wanted(w bus.Assignment) {
	o.Err, o.Failures, o.RetryAt, o.NextRead = nil, 0, time.Time{}, time.Time{}
	if !w.Tombstone() {
		o.Gone, o.Stored = false, false
	}
}

// woken notes that something may have happened.
func (o *observed) woken() { o.Stale, o.NextRead = true, time.Time{} }

// satisfies reports whether the instance is as wanted, its addresses aside. A generation
// above the wanted one is of a document that this record lost; it is not turned back.
func (o *observed) satisfies(w bus.Assignment) bool {
	if !o.Exists || o.Generation < w.Generation {
		return false
	}
	up := o.Status == backends.StatusRunning || o.Status == backends.StatusStarting
	down := o.Status == backends.StatusStopped || o.Status == backends.StatusCrashed
	return w.Desired == bus.DesiredRunning && up || w.Desired == bus.DesiredStopped && down
}

// alive reports whether the instance occupies a processor, if only paused.
func (o *observed) alive() bool {
	return o.Exists && (o.Status == backends.StatusRunning || o.Status == backends.StatusStarting || o.Status == backends.StatusPaused)
}

// comingUp reports whether reads must go on until something is known.
func (o *observed) comingUp() bool {
	return o.alive() && (o.Status == backends.StatusStarting || len(o.Addresses) == 0 || !o.LostAt.IsZero())
}

// ensured takes the outcome of an Ensure for w.
func (o *observed) ensured(w bus.Assignment, i backends.Instance, err error, p policy, now time.Time) {
	o.Busy, o.Step, o.Percent = false, "", 0
	if err != nil {
		if errors.Is(backends.Class(err), backends.ErrNotFound) {
			// Inside a create it means that something vanished under us.
			err = backends.Wrap(backends.ErrTransient, "ensure", err, "something that it needs vanished meanwhile")
		}
		o.failed(err, p, now)
		o.Stale = o.Exists
		return
	}
	o.Err, o.Failures, o.RetryAt = nil, 0, time.Time{}
	o.instance(i, p, now)
	o.Generation = max(w.Generation, i.Generation)
	o.MadeAt, o.NextProbe = now, now
	if !o.satisfies(w) {
		o.repair(p, now) // as asked, says the backend, yet not: do not spin
	}
}

// deleted takes the outcome of a Delete.
func (o *observed) deleted(err error, p policy, now time.Time) {
	o.Busy, o.Step, o.Percent = false, "", 0
	if err != nil {
		o.failed(err, p, now)
		return
	}
	*o = observed{Gone: true}
}

// failed counts a call that failed. What asking again soon will not mend waits the longest.
func (o *observed) failed(err error, p policy, now time.Time) {
	o.Err = asError(err)
	o.Failures++
	min := p.RetryMin
	if latched(o.Err) {
		min = p.RetryMax
	}
	o.RetryAt = now.Add(backoff(o.Failures, min, p.RetryMax, p.Spread()))
}

// read takes the outcome of a Get.
func (o *observed) read(i backends.Instance, err error, p policy, now time.Time) {
	o.Stale = false
	switch class := backends.Class(err); {
	case err == nil:
		o.ReadErr, o.ReadFails = nil, 0
		o.instance(i, p, now)
	case errors.Is(class, backends.ErrNotFound):
		o.ReadErr, o.ReadFails = nil, 0
		if o.Exists {
			o.repair(p, now)
		}
		o.Exists, o.Status, o.Reason, o.Message, o.Generation = false, "", "", "", 0
		o.down()
	default:
		o.ReadErr = asError(err)
		o.ReadFails++
		o.Stale = true
		min := p.RetryMin
		if latched(o.ReadErr) {
			min = p.RetryMax
		}
		o.NextRead = now.Add(backoff(o.ReadFails, min, p.RetryMax, p.Spread()))
	}
}

// mended forgets the error of an Ensure for w where a read shows that all is as wanted:
// somebody else has done it.
func (o *observed) mended(w bus.Assignment) {
	if !o.Stale && o.satisfies(w) {
		o.Err, o.Failures = nil, 0
	}
}

// instance takes what a backend returned.
func (o *observed) instance(i backends.Instance, p policy, now time.Time) {
	was := o.alive()
	o.Exists, o.Status, o.Reason, o.Message, o.Generation = true, i.Status, i.Reason, i.Message, i.Generation
	if !o.alive() {
		if was {
			o.repair(p, now)
		}
		o.down()
		return
	}
	if o.Since.IsZero() {
		o.Since = now
	}
	o.addresses(i, now)
	if !p.Probe {
		o.unprobed()
	}
	o.NextRead = now.Add(pollDelay(now.Sub(o.Since)))
}

// unprobed takes the backend's word for what nobody asks the proxy itself: one that served and
// is coming up again does not serve now.
func (o *observed) unprobed() {
	if o.Status == backends.StatusRunning {
		o.Ready = o.Ready || len(o.Addresses) > 0
		o.ProbeFails = 0
	} else if o.Ready {
		o.ProbeFails = 1
	}
}

// addresses takes those of i. Sources that failed, or that have nothing for a while, do not
// take an address away.
func (o *observed) addresses(i backends.Instance, now time.Time) {
	if len(i.Addresses) > 0 {
		o.Addresses, o.LostAt = addresses(i.Addresses, i.Port), time.Time{}
		return
	}
	if i.AddressUnread || len(o.Addresses) == 0 {
		return
	}
	if o.LostAt.IsZero() {
		o.LostAt, o.Since = now, now
	}
	if now.Sub(o.LostAt) >= addressGrace {
		o.Addresses, o.LostAt, o.Ready = nil, time.Time{}, false
	}
}

// down forgets what holds only for an instance that runs.
func (o *observed) down() {
	o.Addresses, o.Ready, o.ProbeFails, o.ProbeSaid = nil, false, 0, ""
	o.Since, o.LostAt, o.Healthy, o.HealthyAt = time.Time{}, time.Time{}, false, time.Time{}
}

// repair counts that an instance has to be mended: at once the first time, then slower.
func (o *observed) repair(p policy, now time.Time) {
	if now.Sub(o.MadeAt) >= stable {
		o.Repairs = 0
	}
	if o.Repairs > 0 {
		o.RetryAt = now.Add(backoff(o.Repairs, p.RetryMin, p.RetryMax, p.Spread()))
	}
	o.Repairs++
}

// probed takes the outcome of a probe; nil is an answer.
func (o *observed) probed(err error, p policy, now time.Time) {
	if err == nil {
		o.Ready, o.ProbeFails, o.ProbeSaid = true, 0, ""
		o.NextProbe = now.Add(around(p.ProbeInterval, p.Spread()))
	} else {
		o.ProbeFails++
		o.ProbeSaid = err.Error()
		if o.Ready {
			o.NextProbe = now.Add(min(recheck, p.ProbeInterval))
			if o.ProbeFails == 1 {
				o.woken() // perhaps it is not even there
			}
		} else {
			o.NextProbe = now.Add(pollDelay(now.Sub(o.Since)))
		}
	}
	if healthy := o.Ready && o.ProbeFails < p.ProbeFailures; healthy != o.Healthy || o.HealthyAt.IsZero() {
		o.Healthy, o.HealthyAt = healthy, now.UTC().Truncate(time.Second)
	}
}

// latched reports an error that the same request will meet again.
func latched(e *bus.Error) bool {
	return e != nil && (e.Code == backends.ErrPermanent.Error() || e.Code == backends.ErrConflict.Error() || e.Code == backends.ErrNoCapacity.Error())
}

// asError takes an error across the bus. Only the message of a classified error is for
// people; it has no secrets.
func asError(err error) *bus.Error {
	out := &bus.Error{Code: backends.Class(err).Error(), Message: err.Error()}
	if e := (*backends.Error)(nil); errors.As(err, &e) {
		out.Op, out.Message = e.Op, e.Message
		if e.Cause != nil {
			out.Message += " (" + e.Cause.Error() + ")"
		}
	}
	return out
}

func addresses(in []netip.Addr, port int) []bus.Address {
	out := make([]bus.Address, 0, len(in))
	for _, a := range in {
		family := "ipv6"
		if a.Is4() {
			family = "ipv4"
		}
		out = append(out, bus.Address{Address: a.String(), Family: family, Port: port})
	}
	return out
}
