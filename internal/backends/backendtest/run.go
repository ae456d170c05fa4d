package backendtest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/secret"
)

// testCase is one promise of the contract.
type testCase struct {
	name string
	run  func(e *env)
	// needs names what the harness may lack.
	needs Difference
}

// Run holds a backend to the contract.
func Run(t *testing.T, h Harness) {
	h = h.withDefaults()
	h.check(t)
	cases := slices.Concat(createCases, changeCases, deleteCases, foreignCases, readCases, disturbedCases, stepCases)
	for _, c := range cases {
		if h.Differs[c.needs] != "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, h)
			c.run(e)
			e.checkSecrets()
		})
	}
}

// env is the world of one case.
type env struct {
	*testing.T
	h        Harness
	host     string
	owner    backends.Owner
	password string
	heard    *Heard
	refs     int
}

func newEnv(t *testing.T, h Harness) *env {
	var raw [12]byte
	_, _ = rand.Read(raw[:])
	return &env{
		T: t, h: h, host: h.NewHost(t), heard: &Heard{},
		owner: backends.Owner{Installation: newULID(), HostID: newULID()},
		// Characters that quoting tends to get wrong stand between two halves that no
		// encoding of them can hide.
		password: "pw" + hex.EncodeToString(raw[:6]) + `"'$\ #%&<` + hex.EncodeToString(raw[6:]),
	}
}

func newULID() string { return strings.ToLower(ulid.Make().String()) }

// ref names a binding that no other case has. It is deleted when the case ends.
func (e *env) ref() backends.Ref {
	e.refs++
	ref := backends.Ref{Proxy: fmt.Sprintf("suite-%d", e.refs), UID: newULID()}
	owner := e.owner
	e.Cleanup(func() {
		b, err := e.h.Open(e.host, owner, e.heard.logger())
		if err != nil {
			return // the case has failed already, or made the host unusable
		}
		defer b.Close()
		ctx, cancel := e.within(e.h.Patience)
		defer cancel()
		_ = b.Delete(ctx, ref) // a planted thing is a conflict, and its planter removes it
	})
	return ref
}

// request is a valid request with the case's secret in it.
func (e *env) request(ref backends.Ref) backends.Request {
	req := e.h.Request(ref)
	req.Access.Username, req.Access.Password = "suite", secret.String(e.password)
	return req
}

// open opens a backend as an agent's start does, and closes it when the case ends.
func (e *env) open() *witness { return e.openAs(e.owner) }

func (e *env) openAs(owner backends.Owner) *witness {
	e.Helper()
	b, err := e.h.Open(e.host, owner, e.heard.logger())
	if err != nil {
		e.Fatalf("open: %v", err)
	}
	w := &witness{Backend: b, e: e}
	e.Cleanup(w.close)
	return w
}

// traces is what exists for ref, seen without the backend.
func (e *env) traces(ref backends.Ref) []string {
	e.Helper()
	return e.h.Traces(e.T, e.host, ref)
}

// expectNothing fails when anything of ref is left on the host or in a listing.
func (e *env) expectNothing(w *witness, ref backends.Ref) {
	e.Helper()
	if left := e.traces(ref); len(left) > 0 {
		e.Errorf("something is left of %s: %v", ref.UID, left)
	}
	instances, leftovers := w.listed(ref)
	if len(instances)+len(leftovers) > 0 {
		e.Errorf("%s is still listed: instances %+v, leftovers %+v", ref.UID, instances, leftovers)
	}
	if _, err := w.get(ref); backends.Class(err) != backends.ErrNotFound {
		e.Errorf("get after everything is gone: got %v, want NotFound", err)
	}
}

// expectOne fails unless ref has exactly one instance, as asked, and no leftovers.
func (e *env) expectOne(w *witness, req backends.Request) backends.Instance {
	e.Helper()
	instances, leftovers := w.listed(req.Ref)
	if len(instances) != 1 || len(leftovers) != 0 {
		e.Errorf("listed for %s: instances %+v, leftovers %+v; want one instance", req.UID, instances, leftovers)
	}
	i, err := w.get(req.Ref)
	if err != nil {
		e.Fatalf("get: %v", err)
	}
	e.expectAs(i, req)
	return i
}

// expectAs compares an instance with its request.
func (e *env) expectAs(i backends.Instance, req backends.Request) {
	e.Helper()
	m := i.Mark
	if !m.Owned(e.owner) || m.Proxy != req.Proxy || m.UID != req.UID {
		e.Errorf("mark: got %+v, want owner %+v, proxy %s, uid %s", m, e.owner, req.Proxy, req.UID)
	}
	if age := time.Since(m.CreatedAt); age < -time.Minute || age > time.Hour || m.CreatedAt.Nanosecond() != 0 {
		e.Errorf("mark: createdAt %v is not whole seconds of just now", m.CreatedAt)
	}
	want := []backends.Status{backends.StatusRunning, backends.StatusStarting}
	if req.Desired == backends.Stopped {
		want = []backends.Status{backends.StatusStopped}
	}
	if !slices.Contains(want, i.Status) {
		e.Errorf("status: got %s (%s %s), want one of %v", i.Status, i.Reason, i.Message, want)
	}
	if i.Generation != req.Generation {
		e.Errorf("generation: got %d, want %d", i.Generation, req.Generation)
	}
	if i.Port < 1 || (req.Port != 0 && i.Port != req.Port) {
		e.Errorf("port: got %d, want %d (0: any)", i.Port, req.Port)
	}
	if i.ID == "" {
		e.Error("the instance has no id")
	}
	for _, a := range i.Addresses {
		if a.IsUnspecified() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.Is4In6() || a.IsLoopback() && !e.h.Loopback {
			e.Errorf("address %s must never be reported", a)
		}
	}
}

func (e *env) expectClass(what string, err, want error) {
	e.Helper()
	if got := backends.Class(err); got != want {
		e.Errorf("%s: got %v (%v), want %v", what, got, err, want)
	}
}
