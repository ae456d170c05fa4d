package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

// ops are the calls that have steps.
const (
	opCreate = "create"
	opDelete = "delete"
)

// steps runs op once on a new instance and returns its side effects.
func (e *env) steps(op string) []step {
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
	req := e.prepared(b, op)
	if err := e.run(ctx, b, op, req); err != nil {
		e.Fatalf("%s: %v", op, err)
	}
	b.mustDelete(req.Ref)
	if len(steps) < 2 || steps[len(steps)-1].Label != "done" {
		e.Fatalf("%s announces %v; want each side effect, then done", op, steps)
	}
	e.Logf("%s announces %v", op, steps)
	return steps
}

// prepared is a request on which op can run: made already, where op deletes.
func (e *env) prepared(b *witness, op string) backends.Request {
	e.Helper()
	req := e.request(e.ref())
	if op == opDelete {
		b.mustEnsure(req)
	}
	return req
}

func (e *env) run(ctx context.Context, b *witness, op string, req backends.Request) error {
	if op == opDelete {
		return b.deleteIn(ctx, req.Ref)
	}
	_, err := b.ensureIn(ctx, req)
	return err
}

var stepCases = []testCase{
	{name: "killed at any step of creating, the next agent finishes", run: func(e *env) {
		for _, s := range e.steps(opCreate) {
			req := e.prepared(nil, opCreate)
			e.kill(opCreate, req, s)
			b := e.open()
			e.expectAllListed(b, req.Ref)
			e.finish(b, req, "killed at "+s.String())
			b.close()
		}
	}},
	{name: "killed at any step of creating and deleted then, nothing is left", run: func(e *env) {
		for _, s := range e.steps(opCreate) {
			req := e.prepared(nil, opCreate)
			e.kill(opCreate, req, s)
			b := e.open()
			e.removed(b, req.Ref, "killed at "+s.String())
			b.close()
		}
	}},
	{name: "killed at any step of deleting, the next agent finishes", run: func(e *env) {
		for _, s := range e.steps(opDelete) {
			first := e.open()
			req := e.prepared(first, opDelete)
			first.close()
			e.kill(opDelete, req, s)
			b := e.open()
			e.expectAllListed(b, req.Ref)
			e.removed(b, req.Ref, "killed at "+s.String())
			b.close()
		}
	}},
	{name: "an error at any step of creating is returned, and the next call finishes", run: func(e *env) {
		e.eachFailing(opCreate, func(b *witness, req backends.Request, at string) { e.finish(b, req, at) })
	}},
	{name: "an error at any step of creating is returned, and deleting leaves nothing", run: func(e *env) {
		e.eachFailing(opCreate, func(b *witness, req backends.Request, at string) { e.removed(b, req.Ref, at) })
	}},
	{name: "an error at any step of deleting is returned, and the next call finishes", run: func(e *env) {
		e.eachFailing(opDelete, func(b *witness, req backends.Request, at string) { e.removed(b, req.Ref, at) })
	}},
	{name: "cancelled at any step of creating it ends soon, and the next call finishes", run: func(e *env) {
		e.eachCancelled(opCreate, func(b *witness, req backends.Request, at string) { e.finish(b, req, at) })
	}},
	{name: "cancelled at any step of creating it ends soon, and deleting leaves nothing", run: func(e *env) {
		e.eachCancelled(opCreate, func(b *witness, req backends.Request, at string) { e.removed(b, req.Ref, at) })
	}},
	{name: "cancelled at any step of deleting it ends soon, and the next call finishes", run: func(e *env) {
		e.eachCancelled(opDelete, func(b *witness, req backends.Request, at string) { e.removed(b, req.Ref, at) })
	}},
}

var errInjected = errors.New("injected")

// eachFailing makes op fail at each of its steps, then calls after.
func (e *env) eachFailing(op string, after func(b *witness, req backends.Request, at string)) {
	for _, s := range e.steps(op) {
		b := e.open()
		req := e.prepared(b, op)
		ctx := backends.WithSteps(context.Background(), s.at(func() error { return errInjected }))
		if err := e.run(ctx, b, op, req); !errors.Is(err, errInjected) {
			e.Errorf("%s failing at %s: got %v, want the error of the step", op, s, err)
		}
		e.expectAllListed(b, req.Ref)
		after(b, req, "failed at "+s.String())
		b.close()
	}
}

// eachCancelled ends the context at each step of op, then calls after.
func (e *env) eachCancelled(op string, after func(b *witness, req backends.Request, at string)) {
	for _, s := range e.steps(op) {
		b := e.open()
		req := e.prepared(b, op)
		ctx, cancel := context.WithCancel(context.Background())
		var since time.Time
		err := e.run(backends.WithSteps(ctx, s.at(func() error {
			since = time.Now()
			cancel()
			return nil
		})), b, op, req)
		cancel()
		if took := time.Since(since); took > e.h.Promptness {
			e.Errorf("%s cancelled at %s ended %v later", op, s, took)
		}
		if err != nil && !backends.Ended(err) {
			e.Errorf("%s cancelled at %s: got %v, want the end of the context", op, s, err)
		}
		e.expectAllListed(b, req.Ref)
		after(b, req, "cancelled at "+s.String())
		b.close()
	}
}

// finish calls Ensure again and fails unless one instance and then nothing is there.
func (e *env) finish(b *witness, req backends.Request, at string) {
	e.Helper()
	if _, err := b.ensure(req); err != nil {
		e.Errorf("%s, then ensured: %v", at, err)
		return
	}
	e.expectOne(b, req)
	e.removed(b, req.Ref, at+", ensured")
}

func (e *env) removed(b *witness, ref backends.Ref, at string) {
	e.Helper()
	if err := b.delete(ref); err != nil {
		e.Errorf("%s, then deleted: %v", at, err)
		return
	}
	e.expectNothing(b, ref)
	if e.Failed() {
		e.Fatalf("this was %s, then deleted", at)
	}
}
