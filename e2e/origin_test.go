//go:build real && guest

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// serveOrigins runs what guests reach: on the bridge, in plain and with TLS. Both answer
// with the address that asked and with what else would tell of a proxy.
func (v virtHost) serveOrigins() (plain, withTLS *httptest.Server) {
	v.t.Helper()
	serve := func(start func(*httptest.Server)) *httptest.Server {
		l, err := net.Listen("tcp", net.JoinHostPort(v.bridge, "0"))
		if err != nil {
			v.t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			fmt.Fprintf(w, "hello %s via=%q forwarded=%q", host, r.Header.Get("Via"), r.Header.Get("X-Forwarded-For"))
		}))
		_ = s.Listener.Close()
		s.Listener = l
		start(s)
		v.t.Cleanup(s.Close)
		return s
	}
	return serve((*httptest.Server).Start), serve((*httptest.Server).StartTLS)
}

// guestClient uses a proxy as somebody.
type guestClient struct {
	t       testing.TB
	address bus.Address
	user    *url.Userinfo
	tls     *httptest.Server // whose certificate is trusted
}

func (c guestClient) in(t testing.TB) guestClient { c.t = t; return c }

// get returns status and body. Where CONNECT is refused, they are the proxy's.
func (c guestClient) get(origin string) (int, string) {
	c.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(c.tls.Certificate())
	refused := 0
	proxy := &url.URL{Scheme: "http", Host: net.JoinHostPort(c.address.Address, strconv.Itoa(c.address.Port)), User: c.user}
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		Proxy:             http.ProxyURL(proxy),
		DisableKeepAlives: true,
		// The certificate of httptest has this name, and not the bridge's address.
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "example.com"},
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, r *http.Response) error {
			if r.StatusCode != http.StatusOK {
				refused = r.StatusCode
			}
			return nil
		},
	}}
	resp, err := client.Get(origin)
	if err != nil {
		return refused, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Error(err)
	}
	return resp.StatusCode, string(body)
}
