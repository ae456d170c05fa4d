package backendtest

import (
	"context"
	"slices"
	"sync"

	"proxyfleet/internal/backends"
)

var createCases = []testCase{
	{name: "an instance is made and carries our mark", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		e.expectOne(b, req)
		if len(e.traces(req.Ref)) == 0 {
			e.Error("Traces sees nothing of an instance that exists: the harness looks in the wrong place")
		}
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "made twice it is one and the same", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		first := b.mustEnsure(req)
		before := e.traces(req.Ref)
		second := b.mustEnsure(req)
		if first.ID != second.ID || first.Port != second.Port || !first.Mark.CreatedAt.Equal(second.Mark.CreatedAt) {
			e.Errorf("got %+v, want the first one again: %+v", second, first)
		}
		if after := e.traces(req.Ref); len(after) != len(before) {
			e.Errorf("on the host: got %v, want %v", after, before)
		}
		e.expectOne(b, req)
	}},
	{name: "it outlives the agent and is adopted by the next", run: func(e *env) {
		req := e.request(e.ref())
		b := e.open()
		first := b.mustEnsure(req)
		b.close()
		b = e.open()
		if i := e.expectOne(b, req); i.ID != first.ID || i.Mark != first.Mark {
			e.Errorf("after a restart: got %+v, want %+v", i, first)
		}
		if i := b.mustEnsure(req); i.ID != first.ID {
			e.Errorf("after a restart ensure made another: got %s, want %s", i.ID, first.ID)
		}
	}},
	{name: "it is made stopped where that is asked", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		req.Desired = backends.Stopped
		b.mustEnsure(req)
		e.expectOne(b, req)
	}},
	{name: "different proxies are made at once", run: func(e *env) {
		b := e.open()
		reqs := []backends.Request{e.request(e.ref()), e.request(e.ref()), e.request(e.ref())}
		var wg sync.WaitGroup
		for _, req := range reqs {
			wg.Go(func() {
				if _, err := b.ensure(req); err != nil {
					e.Errorf("ensure: %v", err)
				}
			})
		}
		wg.Wait()
		var ports []int
		for _, req := range reqs {
			ports = append(ports, e.expectOne(b, req).Port)
		}
		e.Logf("ports %v", ports)
	}},
	{name: "two bindings of one proxy live side by side", run: func(e *env) {
		b := e.open()
		old, next := e.request(e.ref()), e.request(e.ref())
		next.Proxy = old.Proxy
		b.mustEnsure(old)
		b.mustEnsure(next)
		b.mustDelete(old.Ref)
		e.expectNothing(b, old.Ref)
		e.expectOne(b, next)
		b.mustDelete(next.Ref)
	}},
	{name: "a request without an access rule is refused before anything is made", run: func(e *env) {
		req := e.request(e.ref())
		req.Access = backends.Access{}
		e.expectRefused(req, backends.ErrPermanent)
	}},
	{name: "credentials that could break out of a file are refused", run: func(e *env) {
		for _, bad := range []string{"a\nb", "a:b", "a\x00b", "é"} {
			req := e.request(e.ref())
			req.Access.Username = bad
			e.expectRefused(req, backends.ErrPermanent)
		}
	}},
	{name: "a request for neither running nor stopped is refused", run: func(e *env) {
		req := e.request(e.ref())
		req.Desired = "absent"
		e.expectRefused(req, backends.ErrPermanent)
	}},
	{name: "too large a request is NoCapacity before anything is made", needs: DiffersOversize, run: func(e *env) {
		req := e.request(e.ref())
		e.h.Oversize(&req)
		e.expectRefused(req, backends.ErrNoCapacity)
	}},
	{name: "odd refs are refused", run: func(e *env) {
		b := e.open()
		good := e.ref()
		for _, ref := range []backends.Ref{
			{}, {Proxy: good.Proxy}, {UID: good.UID},
			{Proxy: "../etc", UID: good.UID}, {Proxy: "Upper", UID: good.UID}, {Proxy: "a.b", UID: good.UID}, {Proxy: "-a", UID: good.UID},
			{Proxy: good.Proxy, UID: "../../../../../../etc/passw"}, {Proxy: good.Proxy, UID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
			{Proxy: good.Proxy, UID: good.UID + "\n"}, {Proxy: good.Proxy, UID: "8" + good.UID[1:]},
		} {
			req := e.request(good)
			req.Ref = ref
			_, err := b.ensure(req)
			e.expectClass("ensure", err, backends.ErrPermanent)
			_, err = b.get(ref)
			e.expectClass("get", err, backends.ErrPermanent)
			e.expectClass("delete", b.delete(ref), backends.ErrPermanent)
		}
	}},
}

// expectRefused fails unless Ensure ends with class and made nothing.
func (e *env) expectRefused(req backends.Request, class error) {
	e.Helper()
	b := e.open()
	var labels []string
	ctx := backends.WithSteps(context.Background(), func(label string) error {
		labels = append(labels, label)
		return nil
	})
	_, err := b.ensureIn(ctx, req)
	e.expectClass("ensure", err, class)
	if len(labels) > 0 {
		e.Errorf("side effects before the refusal: %v", slices.Compact(labels))
	}
	if left := e.traces(req.Ref); len(left) > 0 {
		e.Errorf("something was made: %v", left)
	}
}
