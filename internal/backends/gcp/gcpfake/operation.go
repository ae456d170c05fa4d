package gcpfake

import (
	"fmt"
	"hash/fnv"
	"time"
)

// operation is work that was accepted. Its effect comes when it is due, not before, and may be
// a failure.
type operation struct {
	res    *resource // its document
	target *resource
	due    time.Time
	effect func() *OperationError
	undo   func() // what a failure takes back
	fate   Fate
}

// Fate is how operations of a kind end. Empty fields fit every operation.
type Fate struct {
	Method string // "compute.instances.insert"
	Zone   string // or region
	Target string // name of the resource
	Times  int    // how many operations it meets; 0: all from now on
	// Delay comes on top of Options.Latency.
	Delay time.Duration
	// Fail ends the operation with errors; its effect does not come, unless Done.
	Fail []*OperationError
	// Done lets the effect come although the operation says that it failed.
	Done bool
}

// SetFate says how operations end that are accepted from now on. The oldest fate that fits
// meets an operation.
func (s *Server) SetFate(f Fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates = append(s.fates, &f)
}

// ClearFates lets operations take their ordinary way.
func (s *Server) ClearFates() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fates = nil
}

func (s *Server) fateOf(method, scope, target string) Fate {
	for i, f := range s.fates {
		if f.Method != "" && f.Method != method || f.Zone != "" && f.Zone != lastPart(scope) || f.Target != "" && f.Target != target {
			continue
		}
		met := *f
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				s.fates = append(s.fates[:i:i], s.fates[i+1:]...)
			}
		}
		return met
	}
	return Fate{}
}

// HoldOperations keeps every operation from ending until release is called.
func (s *Server) HoldOperations() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	s.held++
	released := false
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !released {
			released = true
			s.held--
			s.advance()
			s.wake()
		}
	}
}

// ForgetOperations removes every operation that is done, as Google does after some weeks.
func (s *Server) ForgetOperations() {
	s.locked(func() {
		for key, r := range s.resources {
			if r.collection == "operations" && r.doc["status"] == "DONE" {
				delete(s.resources, key)
			}
		}
	})
}

// begin accepts work on a target and answers its operation.
func (c *call) begin(kind string, target *resource, effect func() *OperationError, undo func()) (object, error) {
	op := c.s.newOperation(kind, c.project, c.scope, target)
	op.effect, op.undo = effect, undo
	op.fate = c.s.fateOf(c.m.ID, c.scope, target.name)
	if id := c.query.Get("requestId"); id != "" {
		op.res.doc["clientOperationId"] = id
	}
	op.due = c.now.Add(c.s.options.Latency + op.fate.Delay)
	for _, other := range c.s.pending {
		// Work on one resource is done in the order in which it came.
		if other.target == target && other.due.After(op.due) {
			op.due = other.due
		}
	}
	c.s.pending = append(c.s.pending, op)
	return op.res.doc, nil
}

// newOperation makes the document of an operation that runs.
func (s *Server) newOperation(kind, project, scope string, target *resource) *operation {
	now := time.Now()
	h := fnv.New64a()
	fmt.Fprint(h, s.nextID())
	id := fmt.Sprintf("%016x", h.Sum64())
	name := fmt.Sprintf("operation-%d-%s-%s-%s", now.UnixMilli(), id[:13], id[:8], id[8:])
	res := s.add("projects/"+project+"/"+scope+"/operations/"+name, "operation", object{
		"operationType": kind, "status": "RUNNING", "progress": 0, "user": "agent@" + project + ".iam.gserviceaccount.com",
		"targetLink": selfBase + target.key, "targetId": target.doc["id"], "insertTime": stamp(now), "startTime": stamp(now),
	})
	delete(res.doc, "creationTimestamp")
	return &operation{res: res, target: target}
}

// advance ends every operation that is due, in the order in which they were accepted.
func (s *Server) advance() {
	if s.held > 0 {
		return
	}
	now := time.Now()
	for {
		due := -1
		for i, op := range s.pending {
			if !op.due.After(now) && (due < 0 || op.due.Before(s.pending[due].due)) {
				due = i
			}
		}
		if due < 0 {
			return
		}
		op := s.pending[due]
		s.pending = append(s.pending[:due:due], s.pending[due+1:]...)
		s.end(op)
	}
}

func (s *Server) end(op *operation) {
	failed := op.fate.Fail
	if failed == nil || op.fate.Done {
		if err := op.effect(); err != nil {
			failed = []*OperationError{err}
		}
	}
	doc := op.res.doc
	doc["status"], doc["progress"], doc["endTime"] = "DONE", 100, stamp(time.Now())
	if failed == nil {
		return
	}
	if op.undo != nil && !op.fate.Done {
		op.undo()
	}
	var errors []any
	for _, e := range failed {
		errors = append(errors, e.doc())
	}
	doc["error"] = object{"errors": errors}
	doc["httpErrorStatusCode"], doc["httpErrorMessage"] = failed[0].HTTP, failed[0].HTTPText
}

// maxWait is how long the wait methods hold a call.
// https://cloud.google.com/compute/docs/reference/rest/v1/zoneOperations/wait
const maxWait = 2 * time.Minute

func getOperation(c *call) (object, error) {
	r, err := c.find("operations", c.vars["operation"])
	if err != nil {
		return nil, err
	}
	return r.doc, nil
}

// waitOperation holds the call until the operation is done, but not for ever. The lock is given
// up meanwhile.
func waitOperation(c *call) (object, error) {
	r, err := c.find("operations", c.vars["operation"])
	if err != nil {
		return nil, err
	}
	limit := c.now.Add(maxWait)
	for r.doc["status"] != "DONE" && time.Now().Before(limit) {
		until := limit
		for _, op := range c.s.pending {
			if op.res == r && c.s.held == 0 && op.due.Before(until) {
				until = op.due
			}
		}
		changed := c.s.changed
		c.s.mu.Unlock()
		t := time.NewTimer(time.Until(until))
		select {
		case <-t.C:
		case <-changed:
		case <-c.ctx.Done():
		case <-c.s.ctx.Done():
		}
		t.Stop()
		c.s.mu.Lock()
		if c.ctx.Err() != nil || c.s.ctx.Err() != nil {
			return nil, BackendError() // nobody reads it
		}
		c.s.advance()
	}
	return r.doc, nil
}
