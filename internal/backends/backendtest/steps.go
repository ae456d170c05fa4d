package backendtest

import (
	"context"
	"errors"
	"time"

	"proxyfleet/internal/backends"
)

// stepCases disturb each call at each of its steps, and look at what the next call makes of
// that: finish it, or delete everything.
var stepCases = disturbances()

func disturbances() (cases []testCase) {
	for _, o := range []op{creating, deleting, stopping, starting, changing} {
		cases = append(cases,
			testCase{name: "killed at any step of " + o.doing + ", the next agent finishes", run: func(e *env) { e.eachKilled(o, o.finish) }},
			testCase{name: "an error at any step of " + o.doing + " is returned, and the next call finishes", run: func(e *env) { e.eachFailing(o, o.finish) }},
			testCase{name: "cancelled at any step of " + o.doing + " it ends soon, and the next call finishes", run: func(e *env) { e.eachCancelled(o, o.finish) }},
		)
	}
	return append(cases,
		testCase{name: "killed at any step of creating and deleted then, nothing is left", run: func(e *env) { e.eachKilled(creating, remove) }},
		testCase{name: "an error at any step of creating is returned, and deleting leaves nothing", run: func(e *env) { e.eachFailing(creating, remove) }},
		testCase{name: "cancelled at any step of creating it ends soon, and deleting leaves nothing", run: func(e *env) { e.eachCancelled(creating, remove) }},
	)
}

// after is what a case does once a call was disturbed at a step.
type after func(e *env, b *witness, req backends.Request, at string)

// finish makes the same call again and fails unless it ends as asked.
func (o op) finish(e *env, b *witness, req backends.Request, at string) {
	e.Helper()
	if !o.deletes {
		if _, err := b.ensure(req); err != nil {
			e.Fatalf("%s, then ensured: %v", at, err)
		}
		e.expectOne(b, req)
		at += ", ensured"
	}
	remove(e, b, req, at)
}

// remove deletes and fails unless nothing is left.
func remove(e *env, b *witness, req backends.Request, at string) {
	e.Helper()
	if err := b.delete(req.Ref); err != nil {
		e.Fatalf("%s, then deleted: %v", at, err)
	}
	e.expectNothing(b, req.Ref)
	if e.Failed() {
		e.Fatalf("this was %s, then deleted", at)
	}
}

// eachKilled has a process of its own make the call and die at each step.
func (e *env) eachKilled(o op, then after) {
	for _, s := range e.steps(o) {
		first := e.open()
		req := o.prepare(e, first)
		first.close()
		e.kill(o, req, s)
		b := e.open()
		e.expectAllListed(b, req.Ref)
		then(e, b, req, "killed at "+s.String())
		b.close()
	}
}

var errInjected = errors.New("injected")

// eachFailing makes the call fail at each step.
func (e *env) eachFailing(o op, then after) {
	for _, s := range e.steps(o) {
		b := e.open()
		req := o.prepare(e, b)
		ctx := backends.WithSteps(context.Background(), s.at(func() error { return errInjected }))
		if err := o.run(ctx, b, req); !errors.Is(err, errInjected) {
			e.Errorf("%s failing at %s: got %v, want the error of the step", o.doing, s, err)
		}
		e.expectAllListed(b, req.Ref)
		then(e, b, req, "failed at "+s.String())
		b.close()
	}
}

// eachCancelled ends the call's context at each step.
func (e *env) eachCancelled(o op, then after) {
	for _, s := range e.steps(o) {
		b := e.open()
		req := o.prepare(e, b)
		ctx, cancel := context.WithCancel(context.Background())
		var since time.Time
		err := o.run(backends.WithSteps(ctx, s.at(func() error {
			since = time.Now()
			cancel()
			return nil
		})), b, req)
		cancel()
		if since.IsZero() {
			e.Fatalf("%s did not come to %s: %v", o.doing, s, err)
		}
		if took := time.Since(since); took > e.h.Promptness {
			e.Errorf("%s cancelled at %s ended %v later", o.doing, s, took)
		}
		if err != nil && !backends.Ended(err) {
			e.Errorf("%s cancelled at %s: got %v, want the end of the context", o.doing, s, err)
		}
		e.expectAllListed(b, req.Ref)
		then(e, b, req, "cancelled at "+s.String())
		b.close()
	}
}
