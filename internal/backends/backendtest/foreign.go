package backendtest

import (
	"time"

	"proxyfleet/internal/backends"
)

var foreignCases = []testCase{
	{name: "a thing of nobody's under our name is a Conflict and stays as it is", run: func(e *env) {
		e.expectConflict(func(backends.Ref) backends.Mark { return backends.Mark{} })
	}},
	{name: "another installation's thing under our name is a Conflict and stays as it is", needs: DiffersForeignMark, run: func(e *env) {
		e.expectConflict(func(ref backends.Ref) backends.Mark {
			return e.mark(ref, backends.Owner{Installation: newULID(), HostID: e.owner.HostID})
		})
	}},
	{name: "another host's thing under our name is a Conflict and stays as it is", needs: DiffersForeignMark, run: func(e *env) {
		e.expectConflict(func(ref backends.Ref) backends.Mark {
			return e.mark(ref, backends.Owner{Installation: e.owner.Installation, HostID: newULID()})
		})
	}},
	{name: "our own thing of another uid under this name is a Conflict and stays as it is", needs: DiffersForeignMark, run: func(e *env) {
		e.expectConflict(func(ref backends.Ref) backends.Mark {
			m := e.mark(ref, e.owner)
			m.UID = newULID()
			return m
		})
	}},
	{name: "another installation's instances are neither listed nor touched", run: func(e *env) {
		e.expectStranger(backends.Owner{Installation: newULID(), HostID: e.owner.HostID})
	}},
	{name: "another host id's instances are neither listed nor touched", run: func(e *env) {
		e.expectStranger(backends.Owner{Installation: e.owner.Installation, HostID: newULID()})
	}},
}

func (e *env) mark(ref backends.Ref, o backends.Owner) backends.Mark {
	return backends.Mark{Installation: o.Installation, HostID: o.HostID, Proxy: ref.Proxy, UID: ref.UID, CreatedAt: time.Now().UTC().Truncate(time.Second)}
}

// expectConflict plants each kind of thing and fails unless every call leaves it alone.
func (e *env) expectConflict(mark func(backends.Ref) backends.Mark) {
	for kind, plant := range e.h.Plants {
		ref := e.ref()
		m := mark(ref)
		look := plant(e.T, e.host, ref, m)
		before := look()
		b := e.open()
		_, err := b.ensure(e.request(ref))
		e.expectClass("ensure over a foreign "+kind, err, backends.ErrConflict)
		_, err = b.get(ref)
		if got := backends.Class(err); got != backends.ErrConflict && (kind == "instance" || got != backends.ErrNotFound) {
			e.Errorf("get of a foreign %s: got %v, want Conflict", kind, err)
		}
		e.expectClass("delete of a foreign "+kind, b.delete(ref), backends.ErrConflict)
		if !m.Owned(e.owner) {
			if instances, leftovers := b.listed(ref); len(instances)+len(leftovers) > 0 {
				e.Errorf("a foreign %s is listed as ours: %+v %+v", kind, instances, leftovers)
			}
		}
		if after := look(); after != before {
			e.Errorf("the foreign %s was changed:\n got %s\nwant %s", kind, after, before)
		}
	}
}

// expectStranger makes an instance as another owner and fails unless we leave it alone.
func (e *env) expectStranger(other backends.Owner) {
	e.Helper()
	theirs, ours := e.openAs(other), e.open()
	req := e.request(e.ref())
	i, err := theirs.ensure(req)
	if err != nil {
		e.Fatalf("ensure as the other: %v", err)
	}
	e.Cleanup(func() {
		b, err := e.h.Open(e.host, other, e.heard.logger())
		if err != nil {
			return
		}
		defer b.Close()
		ctx, cancel := e.within(e.h.Patience)
		defer cancel()
		_ = b.Delete(ctx, req.Ref)
	})
	if instances, leftovers := ours.listed(req.Ref); len(instances)+len(leftovers) > 0 {
		e.Errorf("another's instance is listed as ours: %+v %+v", instances, leftovers)
	}
	_, err = ours.ensure(req)
	e.expectClass("ensure over another's instance", err, backends.ErrConflict)
	_, err = ours.get(req.Ref)
	e.expectClass("get of another's instance", err, backends.ErrConflict)
	e.expectClass("delete of another's instance", ours.delete(req.Ref), backends.ErrConflict)
	after, err := theirs.get(req.Ref)
	if err != nil || after.ID != i.ID || after.Status != i.Status {
		e.Errorf("another's instance was touched: got %+v (%v), want %+v", after, err, i)
	}
	if err := theirs.delete(req.Ref); err != nil {
		e.Errorf("delete as the other: %v", err)
	}
}
