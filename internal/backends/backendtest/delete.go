package backendtest

import (
	"context"
	"time"

	"proxyfleet/internal/backends"
)

var deleteCases = []testCase{
	{name: "deleted twice it is gone twice", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "deleting what was never made is done at once", run: func(e *env) {
		b := e.open()
		ref := e.ref()
		b.mustDelete(ref)
		e.expectNothing(b, ref)
	}},
	{name: "a stopped one is deleted as well", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		req.Desired = backends.Stopped
		b.mustEnsure(req)
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "deleted after a restart", run: func(e *env) {
		req := e.request(e.ref())
		b := e.open()
		b.mustEnsure(req)
		b.close()
		b = e.open()
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "made again after it was deleted", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		b.mustDelete(req.Ref)
		b.mustEnsure(req)
		e.expectOne(b, req)
		b.mustDelete(req.Ref)
		e.expectNothing(b, req.Ref)
	}},
	{name: "deleted while it is being made, at any moment", run: func(e *env) {
		b := e.open()
		// One run tells how long making takes; the cancellations are spread over that.
		req := e.request(e.ref())
		began := time.Now()
		b.mustEnsure(req)
		took := time.Since(began)
		b.mustDelete(req.Ref)
		const moments = 6
		for i := range moments {
			req := e.request(e.ref())
			ctx, cancel := context.WithTimeout(context.Background(), took*time.Duration(i)/moments)
			if _, err := b.ensureIn(ctx, req); err == nil {
				e.Logf("moment %d was too late to cancel", i)
			}
			cancel()
			b.mustDelete(req.Ref)
			e.expectNothing(b, req.Ref)
		}
	}},
	{name: "deleting one leaves the others", run: func(e *env) {
		b := e.open()
		gone, stays := e.request(e.ref()), e.request(e.ref())
		b.mustEnsure(gone)
		first := b.mustEnsure(stays)
		b.mustDelete(gone.Ref)
		if i := e.expectOne(b, stays); i.ID != first.ID || i.Status == backends.StatusStopped {
			e.Errorf("the other one: got %+v, want %+v", i, first)
		}
	}},
}
