//go:build real

package libvirt

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/backends"
)

// These tests do to a host what people and power cuts do. Each says what must come of it.

func newRef() backends.Ref {
	return backends.Ref{Proxy: "crawl-1", UID: strings.ToLower(ulid.Make().String())}
}

// host is a daemon with a backend on it.
type host struct {
	daemon
	*Backend
}

func startHost(t testing.TB) host { return hostOn(t, startDaemon(t)) }

// hostOn opens a backend on a daemon.
func hostOn(t testing.TB, d daemon) host {
	t.Helper()
	b, err := openAt(d, backends.Owner{Installation: "01installation", HostID: "01host"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return host{d, b}
}

func (h host) ensure(t testing.TB, req backends.Request) backends.Instance {
	t.Helper()
	i, err := h.Ensure(t.Context(), req, nil)
	if err != nil {
		t.Fatalf("ensure: %v", err)
	}
	return i
}

func (h host) delete(t testing.TB, ref backends.Ref) {
	t.Helper()
	if err := h.Delete(t.Context(), ref); err != nil {
		t.Fatalf("delete: %v", err)
	}
	if left := h.Traces(t, ref.UID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func (h host) get(t testing.TB, ref backends.Ref) backends.Instance {
	t.Helper()
	i, err := h.Get(t.Context(), ref)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return i
}

func wantClass(t testing.TB, err, class error) {
	t.Helper()
	if backends.Class(err) != class {
		t.Errorf("got %v, want %v", err, class)
	}
}

func wantCheck(t testing.TB, h host, target, code string) {
	t.Helper()
	for _, c := range h.Check(t.Context()) {
		if c.Target == target {
			if c.Code != code || code != backends.CheckOK && c.Message == "" {
				t.Errorf("%s: got %+v, want %s", target, c, code)
			}
			return
		}
	}
	t.Errorf("there is no check of %s", target)
}
