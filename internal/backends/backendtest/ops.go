package backendtest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"proxyfleet/internal/backends"
)

// step is one side effect of a run: the nth with its label.
type step struct {
	Label string
	N     int // from 1
}

func (s step) String() string {
	if s.N == 1 {
		return s.Label
	}
	return fmt.Sprintf("%s #%d", s.Label, s.N)
}

// at returns a hook that calls do at the step, and passes every other.
func (s step) at(do func() error) func(string) error {
	var mu sync.Mutex
	seen := 0
	return func(label string) error {
		if label != s.Label {
			return nil
		}
		mu.Lock()
		seen++
		hit := seen == s.N
		mu.Unlock()
		if hit {
			return do()
		}
		return nil
	}
}

// op is a call that has steps.
type op struct {
	doing string // "creating", for the names of cases
	// prepare brings the host to where the call begins, and returns the call's request.
	prepare func(e *env, b *witness) backends.Request
	deletes bool // the call is Delete, else Ensure
}

var (
	creating = op{doing: "creating", prepare: func(e *env, _ *witness) backends.Request { return e.request(e.ref()) }}
	deleting = op{doing: "deleting", deletes: true, prepare: func(e *env, b *witness) backends.Request { return e.made(b, backends.Running) }}
	stopping = op{doing: "stopping", prepare: func(e *env, b *witness) backends.Request {
		req := e.made(b, backends.Running)
		req.Desired, req.Generation = backends.Stopped, 2
		return req
	}}
	starting = op{doing: "starting", prepare: func(e *env, b *witness) backends.Request {
		req := e.made(b, backends.Stopped)
		req.Desired, req.Generation = backends.Running, 2
		return req
	}}
	changing = op{doing: "changing in place", prepare: func(e *env, b *witness) backends.Request {
		req := e.made(b, backends.Running)
		req.Generation = 2
		for _, f := range b.InPlace() {
			if f != backends.FieldPort {
				e.changes()[f](&req, backends.Instance{})
			}
		}
		return req
	}}
)

func (e *env) made(b *witness, desired backends.Desired) backends.Request {
	e.Helper()
	req := e.request(e.ref())
	req.Desired = desired
	b.mustEnsure(req)
	return req
}

// changes alter one field of a request, given the instance as it is.
var changes = map[backends.Field]func(*backends.Request, backends.Instance){
	backends.FieldAuth: func(r *backends.Request, _ backends.Instance) { r.Access.Username = "changed" },
	backends.FieldAllowFrom: func(r *backends.Request, _ backends.Instance) {
		r.Access.AllowFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	},
	backends.FieldEgress: func(r *backends.Request, _ backends.Instance) { r.Access.ConnectPorts = []int{8443} },
	backends.FieldPort: func(r *backends.Request, i backends.Instance) {
		if r.Port = i.Port + 1; i.Port == 65535 {
			r.Port = i.Port - 1
		}
	},
}

// changes are those of the suite and of the harness.
func (e *env) changes() map[backends.Field]func(*backends.Request, backends.Instance) {
	all := maps.Clone(changes)
	for f, change := range e.h.Changes {
		all[f] = func(r *backends.Request, _ backends.Instance) { change(r) }
	}
	return all
}

// run makes the call of o.
func (o op) run(ctx context.Context, b *witness, req backends.Request) error {
	if o.deletes {
		return b.deleteIn(ctx, req.Ref)
	}
	_, err := b.ensureIn(ctx, req)
	return err
}

// steps makes the call once on a new instance and returns its side effects.
func (e *env) steps(o op) []step {
	e.Helper()
	var mu sync.Mutex
	var steps []step
	seen := map[string]int{}
	ctx := backends.WithSteps(context.Background(), func(label string) error {
		mu.Lock()
		defer mu.Unlock()
		seen[label]++
		steps = append(steps, step{label, seen[label]})
		return nil
	})
	b := e.open()
	req := o.prepare(e, b)
	if err := o.run(ctx, b, req); err != nil {
		e.Fatalf("%s: %v", o.doing, err)
	}
	b.mustDelete(req.Ref)
	b.close()
	if len(steps) < 2 || steps[len(steps)-1].Label != "done" {
		e.Fatalf("%s announces %v; want each side effect, then done", o.doing, steps)
	}
	if slices.IndexFunc(steps, func(s step) bool { return s.Label == "done" }) != len(steps)-1 {
		e.Errorf("%s announces done before its last side effect: %v", o.doing, steps)
	}
	e.Logf("%s announces %v", o.doing, steps)
	return steps
}
