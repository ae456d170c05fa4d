//go:build pve || proxmox_real

package proxmox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/proxmox/pvefake"
	"proxyfleet/internal/secret"
)

// rig is a cluster and a backend on it. What the backend says is kept, and must have no
// secret in it when the test ends.
type rig struct {
	*testing.T
	c     *pvefake.Cluster
	host  string
	owner backends.Owner
	conf  Config
	hc    backends.HostConfig
	b     *Backend
	said  *backendtest.Heard
	pass  string
}

func newID() string { return strings.ToLower(ulid.Make().String()) }

func newRig(t *testing.T, o pvefake.Options, change ...func(*Config, *backends.HostConfig)) *rig {
	t.Helper()
	host := newHost(t, o)
	r := &rig{T: t, c: clusterOf(host), host: host, owner: backends.Owner{Installation: newID(), HostID: newID()},
		conf: config(host), hc: hostConfig(), said: &backendtest.Heard{}, pass: "pw-" + strings.ToLower(rand.Text())}
	for _, f := range change {
		f(&r.conf, &r.hc)
	}
	r.b = r.open()
	t.Cleanup(r.checkSecrets)
	return r
}

// open is an agent's start, with what an earlier one left in its state directory.
func (r *rig) open() *Backend {
	r.Helper()
	log := slog.New(slog.NewTextHandler(r.said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b, err := openWith(r.host, r.owner, log, r.conf, r.hc)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = b.Close() })
	return b
}

func (r *rig) checkSecrets() {
	raw, err := os.ReadFile(r.conf.TokenFile)
	if err != nil {
		r.Error(err)
	}
	inFile := strings.TrimPrefix(strings.TrimSpace(string(raw)), token+"=")
	for _, s := range []string{r.pass, inFile} {
		if s != "" && strings.Contains(r.said.String(), s) {
			r.Error("a secret was logged")
		}
	}
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	r.Cleanup(cancel)
	return ctx
}

func (r *rig) request() backends.Request {
	req := harness.Request(backends.Ref{Proxy: "crawl-1", UID: newID()})
	req.Access = backends.Access{Username: "crawler", Password: secret.String(r.pass), AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	return req
}

func (r *rig) ensure(req backends.Request) (backends.Instance, error) {
	i, err := r.b.Ensure(r.ctx(), req, nil)
	r.note(err)
	return i, err
}

func (r *rig) note(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(r.said, err)
	}
}

func (r *rig) mustEnsure(req backends.Request) (backends.Instance, pvefake.VM) {
	r.Helper()
	i, err := r.ensure(req)
	if err != nil {
		r.Fatalf("ensure: %v", err)
	}
	return i, mustVM(r.T, r.c, req.Ref)
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
	r.note(err)
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

// list is a listing in which nothing but want could not be read.
func (r *rig) list(b *Backend) backends.Listing {
	r.Helper()
	l, err := b.List(r.ctx())
	if err != nil {
		r.Fatalf("list: %v", err)
	}
	return l
}

// wait fails unless ok becomes true within some seconds.
func (r *rig) wait(what string, ok func() bool) {
	r.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			r.Fatalf("it never came to pass that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// running is how many tasks of a type run.
func (r *rig) running(typ string) int {
	n := 0
	for _, t := range r.c.Tasks() {
		if t.Type == typ && t.Running {
			n++
		}
	}
	return n
}
