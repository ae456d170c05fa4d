package backendtest

import (
	"context"
	"slices"
	"time"

	"proxyfleet/internal/backends"
)

// disturbedCases are about a host on which others act, or which does not answer.
var disturbedCases = []testCase{
	{name: "an instance that ended by itself is told of, and started again", needs: DiffersCrash, run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		first := b.mustEnsure(req)
		var events <-chan backends.Event
		if w, ok := b.Backend.(backends.Watcher); ok {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			events = w.Watch(ctx)
			e.next(events, e.h.Patience) // the one without a uid
		}
		e.h.Crash(e.T, e.host, req.Ref)
		e.expectEvent(events, req.UID)
		e.expectNotRunning(b, req.Ref)
		if i := b.mustEnsure(req); i.Port != first.Port || i.Mark != first.Mark {
			e.Errorf("started again: got %+v, want port and mark of %+v", i, first)
		}
		e.expectOne(b, req)
	}},
	{name: "an instance that ended while no agent ran is started by the next", needs: DiffersCrash, run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		b.close()
		e.h.Crash(e.T, e.host, req.Ref)
		b = e.open()
		e.expectNotRunning(b, req.Ref)
		b.mustEnsure(req)
		e.expectOne(b, req)
	}},
	{name: "an instance that ended by itself is deleted as well", needs: DiffersCrash, run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		e.h.Crash(e.T, e.host, req.Ref)
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "an instance that somebody removed is made again", needs: DiffersVanish, run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		e.h.Vanish(e.T, e.host, req.Ref)
		if _, err := b.get(req.Ref); backends.Class(err) != backends.ErrNotFound {
			if i, _ := b.get(req.Ref); i.Status != backends.StatusBroken {
				e.Errorf("get after it was removed: got %v, want NotFound or Broken", err)
			}
		}
		b.mustEnsure(req)
		e.expectOne(b, req)
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "what somebody left of an instance is listed, and deleted", needs: DiffersVanish, run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		e.h.Vanish(e.T, e.host, req.Ref)
		e.expectAllListed(b, req.Ref)
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "a context that has ended makes and removes nothing", run: func(e *env) {
		b := e.open()
		kept, never := e.request(e.ref()), e.request(e.ref())
		b.mustEnsure(kept)
		before := e.traces(kept.Ref)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := b.ensureIn(ctx, never); err == nil {
			e.Error("ensure succeeded with a context that had ended")
		}
		if left := e.traces(never.Ref); len(left) > 0 {
			e.Errorf("something was made: %v", left)
		}
		if err := b.deleteIn(ctx, kept.Ref); err == nil {
			e.Error("delete succeeded with a context that had ended")
		}
		if after := e.traces(kept.Ref); !slices.Equal(after, before) {
			e.Errorf("something was removed: got %v, want %v", after, before)
		}
		_, err := b.Get(ctx, kept.Ref)
		if err == nil || backends.Class(err) == backends.ErrNotFound {
			e.Errorf("get with a context that had ended: got %v, want its end", err)
		}
		if _, err := b.List(ctx); err == nil {
			e.Error("list succeeded with a context that had ended")
		}
		e.expectOne(b, kept)
	}},
	{name: "a host that refuses our credentials is at fault, and loses nothing", run: func(e *env) {
		if e.h.Lockout == nil {
			e.Log("this backend has no credentials")
			return
		}
		b := e.open()
		req, other := e.request(e.ref()), e.request(e.ref())
		first := b.mustEnsure(req)
		restore := e.h.Lockout(e.T, e.host)
		_, err := b.get(req.Ref)
		e.expectClass("get", err, backends.ErrHostFault)
		_, err = b.ensure(other)
		e.expectClass("ensure", err, backends.ErrHostFault)
		e.expectClass("delete", b.delete(req.Ref), backends.ErrHostFault)
		ctx, cancel := e.within(e.h.Patience)
		defer cancel()
		l, err := b.List(ctx)
		e.heard.say("list: %+v %v", l, err)
		if err == nil && len(l.Unread) == 0 {
			e.Error("list: got neither an error nor an unread part")
		}
		refusals := []string{backends.CheckCredentialsUnavailable, backends.CheckUnauthorized, backends.CheckForbidden, backends.CheckCertificateInvalid}
		checks := b.Check(ctx)
		e.heard.say("check: %+v", checks)
		if !slices.ContainsFunc(checks, func(c backends.TargetHealth) bool { return slices.Contains(refusals, c.Code) }) {
			e.Errorf("check: got %+v, want one of %v", checks, refusals)
		}
		restore() // without a restart
		if i := e.expectOne(b, req); i.ID != first.ID {
			e.Errorf("got instance %s, want %s", i.ID, first.ID)
		}
		b.mustEnsure(other)
	}},
	{name: "calls to a host that hangs end with their context", needs: DiffersStall, run: func(e *env) {
		b := e.open()
		req, other := e.request(e.ref()), e.request(e.ref())
		b.mustEnsure(req)
		resume := e.h.Stall(e.T, e.host)
		calls := map[string]func(context.Context) error{
			"ensure": func(ctx context.Context) error { _, err := b.ensureIn(ctx, other); return err },
			"get":    func(ctx context.Context) error { _, err := b.Get(ctx, req.Ref); return err },
			"delete": func(ctx context.Context) error { return b.deleteIn(ctx, req.Ref) },
			"list": func(ctx context.Context) error {
				l, err := b.List(ctx)
				if err == nil && len(l.Unread) > 0 {
					err = l.Unread[0].Err
				}
				return err
			},
			"check": func(ctx context.Context) error {
				for _, c := range b.Check(ctx) {
					if c.Code != backends.CheckOK {
						return backends.Errorf(backends.ErrTransient, "check", "%s", c.Code)
					}
				}
				return nil
			},
		}
		for name, call := range calls {
			began := time.Now()
			ctx, cancel := e.within(200 * time.Millisecond)
			err := call(ctx)
			cancel()
			if took := time.Since(began); took > 200*time.Millisecond+e.h.Promptness {
				e.Errorf("%s took %v, though its context ended after 200 ms", name, took)
			}
			if err == nil || backends.Class(err) == backends.ErrNotFound {
				e.Errorf("%s of a host that hangs: got %v, want an error that is not NotFound", name, err)
			}
			e.heard.say("%s: %v", name, err)
		}
		resume()
		b.mustEnsure(req)
		e.expectOne(b, req)
		b.mustEnsure(other)
	}},
}

// expectEvent waits for an event that makes the agent look at uid.
func (e *env) expectEvent(events <-chan backends.Event, uid string) {
	e.Helper()
	if events == nil {
		return // not a watcher
	}
	deadline := time.Now().Add(e.h.Patience)
	for {
		ev, ok := e.next(events, time.Until(deadline))
		if !ok {
			e.Error("no event told of it")
			return
		}
		if ev.UID == uid || ev.UID == "" {
			return
		}
	}
}

func (e *env) expectNotRunning(b *witness, ref backends.Ref) {
	e.Helper()
	i, err := b.get(ref)
	if err != nil || !slices.Contains([]backends.Status{backends.StatusCrashed, backends.StatusStopped, backends.StatusBroken}, i.Status) {
		e.Errorf("get after it ended: got %+v (%v), want Crashed, Stopped or Broken", i, err)
	}
}

// expectAllListed fails when something of ref is on the host and in no listing: it would
// never be found again.
func (e *env) expectAllListed(b *witness, ref backends.Ref) {
	e.Helper()
	left := e.traces(ref)
	instances, leftovers := b.listed(ref)
	if len(left) > 0 && len(instances)+len(leftovers) == 0 {
		e.Errorf("on the host and in no listing: %v", left)
	}
	if len(left) == 0 && len(instances)+len(leftovers) > 0 {
		e.Errorf("listed, yet not on the host: %+v %+v", instances, leftovers)
	}
}
