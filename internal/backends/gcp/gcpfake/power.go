package gcpfake

import (
	"fmt"
	"slices"
	"time"
)

// running is the end of a start.
func (s *Server) running(r *resource) {
	r.doc["status"], r.doc["lastStartTimestamp"] = "RUNNING", stamp(time.Now())
	r.doc["cpuPlatform"] = "Intel Broadwell"
	s.serial[r.key] += fmt.Sprintf("[    0.000000] Linux version 6.12 (%s)\n", r.name)
}

// change is a transition of a machine: from one of these states (from a later one it is a
// refusal), by way of one that is seen meanwhile, to one at its end. A machine that is there
// already stays as it is.
type change struct {
	kind string
	from []string
	via  string
	to   string
	// finish does the rest; its error takes the machine back to where it was.
	finish func(*call, *resource) *OperationError
}

func (c *call) transit(ch change) (object, error) {
	r, err := c.find("instances", c.vars["instance"])
	if err != nil {
		return nil, err
	}
	before := text(r.doc, "status")
	if r.pending || slices.Contains([]string{"STOPPING", "SUSPENDING", "STAGING", "PROVISIONING"}, before) && before != ch.via {
		return nil, NotReady(r.key)
	}
	if before == ch.to || before == ch.via {
		return c.begin(ch.kind, r, func() *OperationError { return nil }, nil)
	}
	if !slices.Contains(ch.from, before) {
		return nil, &Error{Code: 400, Reason: "invalidResourceUsage", Message: fmt.Sprintf("Invalid resource usage: 'Instance is in an invalid state %s for %s.'.", before, ch.kind)}
	}
	r.doc["status"] = ch.via
	return c.begin(ch.kind, r, func() *OperationError {
		if c.s.resources[r.key] != r {
			return gone(r.key)
		}
		if ch.finish != nil {
			if err := ch.finish(c, r); err != nil {
				return err
			}
		}
		r.doc["status"] = ch.to
		return nil
	}, func() { r.doc["status"] = before })
}

func gone(key string) *OperationError {
	return &OperationError{Code: "RESOURCE_NOT_FOUND", HTTP: 404, HTTPText: "NOT FOUND", Message: fmt.Sprintf("The resource '%s' was not found", key)}
}

func startInstance(c *call) (object, error) {
	return c.transit(change{kind: "start", from: []string{"TERMINATED"}, via: "STAGING", to: "RUNNING", finish: startUp})
}

func resumeInstance(c *call) (object, error) {
	return c.transit(change{kind: "resume", from: []string{"SUSPENDED"}, via: "STAGING", to: "RUNNING", finish: startUp})
}

// startUp takes processors and addresses again; a zone may have none left.
func startUp(c *call, r *resource) *OperationError {
	if err := c.s.soldOut(c.project, c.zone(), lastPart(text(r.doc, "machineType"))); err != nil {
		return err
	}
	more := map[string]float64{}
	c.s.addRunning(more, r.doc, c.region())
	used := c.s.overQuotaBut(r, more)
	if used != nil {
		return used
	}
	if err := c.s.wire(c.project, c.region(), r); err != nil {
		return err
	}
	c.s.running(r)
	return nil
}

// overQuotaBut asks for quota as if the machine were off: while it starts it counts already.
func (s *Server) overQuotaBut(r *resource, more map[string]float64) *OperationError {
	r.pending = true
	defer func() { r.pending = false }()
	return s.overQuota(r.project(), regionOfScope(scopeOf(r.key)), more)
}

func stopInstance(c *call) (object, error) {
	return c.transit(change{kind: "stop", from: []string{"RUNNING"}, via: "STOPPING", to: "TERMINATED", finish: func(c *call, r *resource) *OperationError {
		c.s.stopped(r)
		return nil
	}})
}

func (s *Server) stopped(r *resource) {
	s.unwire(r)
	r.doc["status"], r.doc["lastStopTimestamp"] = "TERMINATED", stamp(time.Now())
}

func suspendInstance(c *call) (object, error) {
	return c.transit(change{kind: "suspend", from: []string{"RUNNING"}, via: "SUSPENDING", to: "SUSPENDED", finish: func(c *call, r *resource) *OperationError {
		c.s.unwire(r)
		r.doc["lastSuspendedTimestamp"] = stamp(time.Now())
		return nil
	}})
}

func resetInstance(c *call) (object, error) {
	r, err := c.find("instances", c.vars["instance"])
	if err != nil {
		return nil, err
	}
	if text(r.doc, "status") != "RUNNING" {
		return nil, NotReady(r.key)
	}
	return c.begin("reset", r, func() *OperationError {
		c.s.running(r)
		return nil
	}, nil)
}

// deleteInstance takes a machine in whatever state it is, with the disks that go with it.
func deleteInstance(c *call) (object, error) {
	r, err := c.find("instances", c.vars["instance"])
	if err != nil {
		return nil, err
	}
	if r.doc["deletionProtection"] == true {
		return nil, &Error{Code: 400, Reason: "invalidResourceUsage", Message: fmt.Sprintf("Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion. Disable deletion protection and try again. Resource: %s'.", r.key)}
	}
	before := text(r.doc, "status")
	r.doc["status"] = "STOPPING"
	return c.begin("delete", r, func() *OperationError {
		c.s.removeInstance(r)
		return nil
	}, func() { r.doc["status"] = before })
}

// removeInstance takes a machine away; a second removal changes nothing.
func (s *Server) removeInstance(r *resource) {
	if s.resources[r.key] != r {
		return
	}
	delete(s.resources, r.key)
	delete(s.serial, r.key)
	for _, d := range each(r.doc, "disks") {
		if key := text(d, "source")[len(selfBase):]; d["autoDelete"] == true {
			delete(s.resources, key)
		}
	}
	s.detach(r)
}

// remove takes a resource away.
func (s *Server) remove(r *resource) *OperationError {
	if s.resources[r.key] == r {
		delete(s.resources, r.key)
	}
	return nil
}
