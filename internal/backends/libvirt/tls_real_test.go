//go:build real

package libvirt

import (
	"os"
	"path/filepath"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

func TestAHostIsKeptThroughTLS(t *testing.T) {
	ca := libvirttest.NewCA(t)
	inner, address := libvirttest.StartTLS(t, ca)
	d := daemon{Daemon: inner}
	dir := t.TempDir()
	cfg := Config{URI: "qemu+tls://" + address + "/system", VirtType: "qemu",
		TLS: TLS{CA: filepath.Join(dir, "ca"), Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}}
	h := remoteHost(t, d, cfg)
	put := func(ca string, cert, key string) {
		t.Helper()
		for to, from := range map[string]string{cfg.TLS.CA: ca, cfg.TLS.Cert: cert, cfg.TLS.Key: key} {
			must(t, os.WriteFile(to, contents(t, from), 0o600))
		}
	}
	other := libvirttest.NewCA(t)
	cert, key := ca.Issue(t, "127.0.0.1")
	otherCert, otherKey := other.Issue(t, "127.0.0.1")
	for _, c := range []struct {
		what, code string
		spoil      func()
	}{
		{"no files", backends.CheckCredentialsUnavailable, func() {}},
		{"a key of another certificate", backends.CheckCredentialsUnavailable, func() { put(ca.File, cert, otherKey) }},
		{"a daemon of another CA", backends.CheckCertificateInvalid, func() { put(other.File, cert, key) }},
		{"a certificate of another CA", backends.CheckUnauthorized, func() { put(ca.File, otherCert, otherKey) }},
	} {
		c.spoil()
		_, err := h.List(t.Context())
		if backends.Class(err) != backends.ErrHostFault {
			t.Errorf("%s: got %v, want a fault of the host", c.what, err)
		}
		wantCheck(t, h, "libvirtd", c.code)
	}
	put(ca.File, cert, key)
	wantCheck(t, h, "libvirtd", backends.CheckOK)
	req := request(newRef())
	h.ensure(t, req)
	if i := h.get(t, req.Ref); i.Status != backends.StatusRunning {
		t.Errorf("got %+v, want Running", i)
	}
	h.delete(t, req.Ref)
	up := h.Down(t)
	_, err := h.List(t.Context())
	wantClass(t, err, backends.ErrTransient)
	up()
}
