package backendtest

import (
	"slices"

	"proxyfleet/internal/backends"
)

var changeCases = []testCase{
	{name: "running, stopped, running and stopped again", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		first := b.mustEnsure(req)
		for i, desired := range []backends.Desired{backends.Stopped, backends.Running, backends.Stopped} {
			req.Desired, req.Generation = desired, uint64(i)+2
			got := b.mustEnsure(req)
			if got.Port != first.Port || got.Mark != first.Mark {
				e.Errorf("port and mark: got %d %+v, want %d %+v", got.Port, got.Mark, first.Port, first.Mark)
			}
			e.expectOne(b, req)
		}
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "a stopped one stays stopped through a restart", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		req.Desired = backends.Stopped
		b.mustEnsure(req)
		b.close()
		e.expectOne(e.open(), req)
	}},
	{name: "a generation alone changes nothing else", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		first := b.mustEnsure(req)
		req.Generation = 7
		if got := b.mustEnsure(req); got.ID != first.ID || got.Port != first.Port {
			e.Errorf("got %+v, want the same instance %+v", got, first)
		}
		b.close()
		e.expectOne(e.open(), req)
	}},
	{name: "what changes in place does, what does not is Permanent and changes nothing", run: func(e *env) {
		b := e.open()
		for field, change := range e.changes() {
			before := e.request(e.ref())
			first := b.mustEnsure(before)
			after := before
			after.Generation++
			change(&after, first)
			if slices.Contains(b.InPlace(), field) {
				if got := b.mustEnsure(after); got.Mark != first.Mark {
					e.Errorf("%s: the mark changed: got %+v, want %+v", field, got.Mark, first.Mark)
				}
				e.expectOne(b, after)
			} else {
				_, err := b.ensure(after)
				e.expectClass("changing "+string(field), err, backends.ErrPermanent)
				if got := e.expectOne(b, before); got.ID != first.ID {
					e.Errorf("%s: got instance %s, want %s", field, got.ID, first.ID)
				}
			}
			b.mustDelete(before.Ref)
		}
	}},
}
