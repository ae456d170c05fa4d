package gcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/gcp/gcpfake"
	"proxyfleet/internal/secret"
)

// rig is a project and a backend on it. What the backend says is kept, and must have no secret in it
// when the test ends.
type rig struct {
	*testing.T
	s     *gcpfake.Server
	host  string
	owner backends.Owner
	conf  Config
	hc    backends.HostConfig
	b     *Backend
	said  *backendtest.Heard
	pass  string
}

func newID() string { return strings.ToLower(ulid.Make().String()) }

func newRig(t *testing.T, change ...func(*Config, *backends.HostConfig)) *rig {
	t.Helper()
	host := newHost(t, gcpfake.Options{}, "")
	r := &rig{T: t, s: serverOf(host), host: host, owner: backends.Owner{Installation: newID(), HostID: newID()},
		conf: config(host), hc: hostConfig(), said: &backendtest.Heard{}, pass: "pw-" + strings.ToLower(rand.Text())}
	for _, f := range change {
		f(&r.conf, &r.hc)
	}
	r.b = r.open()
	t.Cleanup(func() {
		for _, s := range []string{r.pass, token, "its-secret", "its-refresh-token", "secret-in-user-data"} {
			if strings.Contains(r.said.String(), s) {
				t.Errorf("%q was said", s)
			}
		}
	})
	return r
}

// open is an agent's start, with what an earlier one left in its state directory.
func (r *rig) open() *Backend {
	r.Helper()
	b, err := openWith(r.host, r.owner, slog.New(slog.NewTextHandler(r.said, &slog.HandlerOptions{Level: slog.LevelDebug})), r.conf, r.hc)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = b.Close() })
	return b
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	r.Cleanup(cancel)
	return ctx
}

func (r *rig) request() backends.Request {
	return backends.Request{Ref: backends.Ref{Proxy: "crawl-1", UID: newID()}, Generation: 1, Desired: backends.Running, Image: "ubuntu", MachineType: "small", DiskGiB: 10,
		Access:   backends.Access{Username: "crawler", Password: secret.String(r.pass), AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		UserData: []byte("#cloud-config\n# secret-in-user-data\n")}
}

func (r *rig) ensure(req backends.Request) (backends.Instance, error) {
	i, err := r.b.Ensure(r.ctx(), req, func(p backends.Progress) { _, _ = fmt.Fprintln(r.said, p.Step) })
	if err != nil {
		_, _ = fmt.Fprintln(r.said, err)
	}
	return i, err
}

func (r *rig) mustEnsure(req backends.Request) (backends.Instance, gcpfake.Instance) {
	r.Helper()
	i, err := r.ensure(req)
	if err != nil {
		r.Fatalf("ensure: %v", err)
	}
	return i, r.mustHave(req.Ref)
}

// mustHave is the one instance of ref, seen behind the backend's back.
func (r *rig) mustHave(ref backends.Ref) (found gcpfake.Instance) {
	r.Helper()
	n := 0
	for _, i := range r.s.Instances() {
		if i.Name == backends.InstanceName(ref.UID) {
			found, n = i, n+1
		}
	}
	if n != 1 {
		r.Fatalf("there are %d instances, want one", n)
	}
	return found
}

func (r *rig) mustDelete(ref backends.Ref) {
	r.Helper()
	if err := r.b.Delete(r.ctx(), ref); err != nil {
		r.Fatalf("delete: %v", err)
	}
	r.expectNothing(ref)
}

func (r *rig) expectNothing(ref backends.Ref) {
	r.Helper()
	if left := traces(r.T, r.host, ref); len(left) > 0 {
		r.Errorf("something is left: %v", left)
	}
}

// expect fails unless err has the class and says each of texts.
func (r *rig) expect(err, class error, texts ...string) {
	r.Helper()
	if got := backends.Class(err); !errors.Is(got, class) || (got == nil) != (class == nil) {
		r.Errorf("got %v (%v), want %v", got, err, class)
		return
	}
	for _, text := range texts {
		if !strings.Contains(fmt.Sprint(err), text) {
			r.Errorf("the error does not say %q:\n%v", text, err)
		}
	}
}

// inserts are the inserts of instances that were asked for: zone and requestId of each.
func (r *rig) inserts() (zones, ids []string) {
	for _, q := range r.s.Requests() {
		if q.Method == "compute.instances.insert" {
			zones = append(zones, strings.Split(q.Path, "/")[6])
			ids = append(ids, q.Query.Get("requestId"))
		}
	}
	return zones, ids
}

func (r *rig) expectZones(want ...string) {
	r.Helper()
	if got, _ := r.inserts(); !slices.Equal(got, want) {
		r.Errorf("inserts were asked for in %v, want %v", got, want)
	}
}

// answer makes requests for a method fail until the returned function is called.
func (r *rig) answer(method string, e *gcpfake.Error) (mend func()) {
	r.s.OnRequest(func(q gcpfake.Request) gcpfake.Action {
		if q.Method == method {
			return gcpfake.Action{Error: e}
		}
		return gcpfake.Action{}
	})
	return func() { r.s.OnRequest(nil) }
}

// cut loses the answers to requests for a method, once each is carried out.
func (r *rig) cut(method string) (mend func()) {
	r.s.OnRequest(func(q gcpfake.Request) gcpfake.Action {
		if q.Method == method {
			return gcpfake.Action{Cut: gcpfake.CutAfter}
		}
		return gcpfake.Action{}
	})
	return func() { r.s.OnRequest(nil) }
}

const insertMethod = "compute.instances.insert"
