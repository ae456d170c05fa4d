package backendtest

import (
	"context"
	"slices"
	"time"

	"go.uber.org/goleak"

	"proxyfleet/internal/backends"
)

var knownCodes = []string{
	backends.CheckOK, backends.CheckCredentialsUnavailable, backends.CheckCertificateInvalid, backends.CheckUnauthorized,
	backends.CheckForbidden, backends.CheckUnreachable, backends.CheckTimeout, backends.CheckPoolNotFound, backends.CheckPoolNotActive,
	backends.CheckNetworkNotFound, backends.CheckNetworkNotActive, backends.CheckNamespaceNotFound, backends.CheckStorageNotFound, backends.CheckTemplateNotFound,
	backends.CheckImageNotFound, backends.CheckZoneNotFound, backends.CheckQuotaExhausted, backends.CheckLowSpace, backends.CheckLowMemory,
	backends.CheckHostKeyInvalid, backends.CheckAddressShared, backends.CheckClockUnsynchronised, backends.CheckVirtUnavailable, backends.CheckAPIError,
}

var readCases = []testCase{
	{name: "what is not there is NotFound", run: func(e *env) {
		_, err := e.open().get(e.ref())
		e.expectClass("get", err, backends.ErrNotFound)
	}},
	{name: "an unreadable instance is neither gone nor in the others' way", needs: DiffersUnread, run: func(e *env) {
		b := e.open()
		broken, fine := e.request(e.ref()), e.request(e.ref())
		b.mustEnsure(broken)
		b.mustEnsure(fine)
		mend := e.h.Unread(e.T, e.host, broken.Ref)
		_, err := b.get(broken.Ref)
		if c := backends.Class(err); c != backends.ErrTransient && c != backends.ErrHostFault {
			e.Errorf("get of an unreadable one: got %v (%v), want Transient or HostFault", c, err)
		}
		l := b.list()
		if len(l.Unread) == 0 {
			e.Error("the listing does not say that a part of it could not be read")
		}
		for _, u := range l.Unread {
			if u.What == "" || u.Err == nil {
				e.Errorf("unread without what or why: %+v", u)
			}
		}
		if !slices.ContainsFunc(l.Instances, func(i backends.Instance) bool { return i.Mark.UID == fine.UID }) {
			e.Error("the readable one is missing from the listing")
		}
		if slices.ContainsFunc(l.Leftovers, func(o backends.Leftover) bool { return o.Mark.UID == broken.UID }) {
			e.Error("a part of the unreadable one is listed as left over, as if its instance were gone")
		}
		if _, err := b.get(fine.Ref); err != nil {
			e.Errorf("get of the readable one: %v", err)
		}
		if err := b.delete(broken.Ref); err == nil {
			if left := e.traces(broken.Ref); len(left) > 0 {
				e.Errorf("delete of an unreadable one said that nothing is left, but there is %v", left)
			}
			mend()
			return
		}
		mend()
		e.expectOne(b, broken)
		b.mustDelete(broken.Ref)
		e.expectNothing(b, broken.Ref)
	}},
	{name: "the offer can be placed by", run: func(e *env) {
		ctx, cancel := e.within(e.h.Patience)
		defer cancel()
		o, err := e.open().Offer(ctx)
		if err != nil {
			e.Fatalf("offer: %v", err)
		}
		if o.DefaultImage != "" && !slices.Contains(o.Images, o.DefaultImage) {
			e.Errorf("the default image %q is not offered: %v", o.DefaultImage, o.Images)
		}
		if o.DefaultMachineType != "" && !slices.ContainsFunc(o.MachineTypes, func(s backends.Shape) bool { return s.Name == o.DefaultMachineType }) {
			e.Errorf("the default machine type %q is not offered: %v", o.DefaultMachineType, o.MachineTypes)
		}
		if o.Capacity.Slots == 0 {
			e.Errorf("the offer has no slot at all: %+v", o.Capacity)
		}
	}},
	{name: "checks have a target and a known code", run: func(e *env) {
		ctx, cancel := e.within(e.h.Patience)
		defer cancel()
		checks := e.open().Check(ctx)
		if len(checks) == 0 {
			e.Error("there is no check")
		}
		for _, c := range checks {
			e.heard.say("check: %+v", c)
			if c.Target == "" || !slices.Contains(knownCodes, c.Code) || (c.Code != backends.CheckOK && c.Message == "") {
				e.Errorf("odd check: %+v", c)
			}
		}
	}},
	{name: "kind is a stable word and in-place fields are known", run: func(e *env) {
		a, b := e.open(), e.open()
		if a.Kind() == "" || a.Kind() != b.Kind() {
			e.Errorf("kinds: got %q and %q", a.Kind(), b.Kind())
		}
		for _, f := range a.InPlace() {
			if !slices.Contains([]backends.Field{backends.FieldAuth, backends.FieldAllowFrom, backends.FieldEgress, backends.FieldPort,
				backends.FieldMachineType, backends.FieldDiskGiB}, f) {
				e.Errorf("unknown field %q", f)
			}
		}
	}},
	{name: "closing ends nothing but the backend", run: func(e *env) {
		b := e.open()
		req := e.request(e.ref())
		first := b.mustEnsure(req)
		b.close()
		if i := e.expectOne(e.open(), req); i.ID != first.ID {
			e.Errorf("got %+v, want %+v", i, first)
		}
	}},
	{name: "closing ends every goroutine", run: func(e *env) {
		b := e.open()
		before := goleak.IgnoreCurrent() // what a host's stand-in keeps in this process
		b.close()
		b = e.open()
		req := e.request(e.ref())
		b.mustEnsure(req)
		b.list()
		ctx, cancel := context.WithCancel(context.Background())
		if w, ok := b.Backend.(backends.Watcher); ok {
			e.next(w.Watch(ctx), e.h.Patience)
		}
		cancel()
		b.close()
		if err := goleak.Find(before); err != nil {
			e.Error(err)
		}
	}},
	{name: "a watcher tells at once that anything may have changed, and ends with its context", run: func(e *env) {
		b := e.open()
		w, ok := b.Backend.(backends.Watcher)
		if !ok {
			return // watching is an ability, not a duty
		}
		ctx, cancel := context.WithCancel(context.Background())
		events := w.Watch(ctx)
		if ev, ok := e.next(events, e.h.Patience); !ok || ev.UID != "" {
			e.Errorf("first event: got %+v (%v), want one without a uid", ev, ok)
		}
		cancel()
		deadline := time.After(e.h.Promptness)
		for {
			select {
			case _, open := <-events:
				if !open {
					return
				}
			case <-deadline:
				e.Fatal("the channel was not closed after the context ended")
			}
		}
	}},
}

// next waits for one event; ok is false when none comes.
func (e *env) next(events <-chan backends.Event, d time.Duration) (ev backends.Event, ok bool) {
	select {
	case ev, ok = <-events:
		return ev, ok
	case <-time.After(d):
		return ev, false
	}
}
