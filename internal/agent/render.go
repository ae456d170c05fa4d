package agent

import (
	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

// render is the state that people see for what is wanted and what was seen. ok is false
// while nothing is known of a uid from an earlier session: what that session said stands.
func render(w bus.Assignment, o observed) (s bus.State, ok bool) {
	s = bus.State{Proxy: w.Proxy, UID: w.UID, Generation: w.Generation, Error: o.Err}
	if o.Busy {
		s.Step, s.Percent = o.Step, o.Percent
	}
	if w.Tombstone() {
		s.Phase = bus.PhaseDeleting
		if o.Gone {
			return bus.State{Proxy: w.Proxy, UID: w.UID, Generation: w.Generation, Phase: bus.PhaseGone}, true
		}
		return s, true
	}
	if s.Error == nil {
		s.Error = o.ReadErr
	}
	unread := o.Stale && !o.Exists
	if unread && s.Error == nil && !o.Busy {
		return s, false
	}
	s.Addresses = o.Addresses
	switch {
	case latched(s.Error):
		s.Phase = bus.PhaseFailed
	case unread && o.LastPhase != "":
		// Nothing could be read since this agent started: what was known stands.
		s.Phase = o.LastPhase
		if o.Generation > 0 {
			s.Generation = o.Generation
		}
	case !o.alive():
		s.Phase = bus.PhaseProvisioning
		if w.Desired == bus.DesiredStopped && o.satisfies(w) {
			s.Phase = bus.PhaseStopped
		}
	case w.Desired == bus.DesiredStopped:
		s.Phase, s.Generation = o.upPhase(&s), o.Generation
		if s.Step == "" {
			s.Step = "stopping"
		}
	default:
		s.Phase = o.upPhase(&s)
		if o.Generation < w.Generation && s.Phase != bus.PhaseProvisioning {
			s.Generation = o.Generation // it still serves as it was
		}
	}
	s.Conditions = o.conditions()
	return s, true
}

// upPhase is the phase of an instance that is alive; it sets the step that is awaited.
func (o *observed) upPhase(s *bus.State) bus.Phase {
	awaits := func(step string) bus.Phase {
		if s.Step == "" {
			s.Step = step
		}
		return bus.PhaseProvisioning
	}
	switch {
	case o.Status == backends.StatusPaused:
		return bus.PhaseDegraded
	case o.Status == backends.StatusStarting && !o.Ready:
		return awaits("starting")
	case len(o.Addresses) == 0:
		return awaits("waiting for address")
	case !o.Ready:
		return awaits("waiting for proxy")
	case o.ProbeFails > 0 && !o.Healthy:
		return bus.PhaseDegraded
	}
	return bus.PhaseRunning
}

func (o *observed) conditions() []bus.Condition {
	var out []bus.Condition
	if !o.HealthyAt.IsZero() {
		c := bus.Condition{Type: "Healthy", Status: "True", Reason: "Answers", Since: o.HealthyAt}
		if !o.Healthy {
			c.Status, c.Reason, c.Message = "False", "NoAnswer", o.ProbeSaid
		}
		out = append(out, c)
	}
	if o.Reason != "" {
		c := bus.Condition{Type: "Instance", Status: "False", Reason: o.Reason, Message: o.Message}
		if o.Status == backends.StatusRunning {
			c.Status = "True"
		}
		out = append(out, c)
	}
	return out
}
