package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"proxyfleet/internal/backends/egress"
)

// Limits of one proxy.
const (
	headerTimeout   = 15 * time.Second // for a client's headers
	idleTimeout     = time.Minute      // for a client's next request
	maxHeader       = 64 << 10         // bytes, of a request and of an answer
	dialTimeout     = 20 * time.Second // to resolve and connect
	responseTimeout = 2 * time.Minute  // until an origin's headers
	tunnelIdle      = 10 * time.Minute // without a byte either way from or to the origin
	refusedTimeout  = time.Second      // for the body of a request that is refused
)

func discard() *log.Logger { return log.New(io.Discard, "", 0) }

// newServer has no limit on how long a body takes: downloads may be long. It answers nothing
// by itself, or "OPTIONS *" would need no credentials.
func newServer(p *proxy) *http.Server {
	return &http.Server{Handler: p, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		DisableGeneralOptionsHandler: true, ErrorLog: discard()}
}

// proxy is the handler. Requests meet the rules that are in force when they come.
type proxy struct{ current atomic.Pointer[rules] }

// rules are one applied configuration.
type rules struct {
	conf    conf
	check   *checker
	dialer  dialer
	forward *goproxy.ProxyHttpServer
}

// apply puts a configuration in force. Tunnels and requests under way keep the former one.
func (p *proxy) apply(c conf) {
	r := &rules{conf: c, check: newChecker(c.Username, c.PasswordHash), forward: newForward(), dialer: dialer{
		sources: c.Sources, own: machine, lookup: lookup,
		rules: egress.Rules{Private: c.Private, ConnectPorts: c.ConnectPorts, Loopback: c.Loopback},
	}}
	if old := p.current.Swap(r); old != nil {
		old.forward.Tr.CloseIdleConnections() // they may lead where one may not go any more
	}
}

// ServeHTTP decides who may go where, and leaves the carrying to goproxy.
func (p *proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r := p.current.Load()
	client, err := netip.ParseAddrPort(req.RemoteAddr)
	if err != nil || !r.admits(client.Addr().Unmap()) {
		refuse(w, "this client's address is not allowed", http.StatusForbidden)
		return
	}
	if r.conf.Username != "" && !r.check.allows(req.Header.Get("Proxy-Authorization")) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="proxy"`)
		refuse(w, "credentials are needed", http.StatusProxyAuthRequired)
		return
	}
	host, port, refusal := target(req)
	if refusal != "" {
		refuse(w, refusal, http.StatusBadRequest)
		return
	}
	connect := req.Method == http.MethodConnect
	if connect && !r.dialer.rules.Connect(port) || !connect && !r.dialer.rules.Port(port) || req.Method == http.MethodTrace {
		refuse(w, "this method and port are not allowed", http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), dialTimeout)
	addrs, err := r.dialer.resolve(ctx, host)
	cancel()
	if err != nil {
		status := http.StatusBadGateway
		if errors.Is(err, errRefused) {
			status = http.StatusForbidden
		}
		refuse(w, err.Error(), status)
		return
	}
	req = req.WithContext(withTarget(req.Context(), dialTarget{dialer: r.dialer, addrs: addrs, port: uint16(port)}))
	stripHopByHop(req.Header)
	if !connect {
		w = flushing{w}
	}
	r.forward.ServeHTTP(w, req)
}

// refuse answers a request that goes no further. net/http reads a body to its end before it
// answers, and would wait for ever for one that does not come: anybody could hold
// connections without credentials.
func refuse(w http.ResponseWriter, text string, status int) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedTimeout))
	http.Error(w, text, status)
}

// flushing passes each part of an answer on at once: an origin may say something and wait.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.ResponseWriter.Write(b)
	if err == nil {
		err = http.NewResponseController(f.ResponseWriter).Flush()
	}
	return n, err
}

// Hijack implements [http.Hijacker], for WebSockets.
func (f flushing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(f.ResponseWriter).Hijack()
}

func (r *rules) admits(client netip.Addr) bool {
	return len(r.conf.AllowFrom) == 0 ||
		slices.ContainsFunc(r.conf.AllowFrom, func(p netip.Prefix) bool { return p.Contains(client) })
}

// target is where a request wants to go, or why that cannot be told.
func target(req *http.Request) (host string, port int, refusal string) {
	if req.Method == http.MethodConnect {
		h, text, err := net.SplitHostPort(req.Host)
		n, numErr := strconv.ParseUint(text, 10, 16)
		if err != nil || numErr != nil || h == "" || n == 0 {
			return "", 0, "CONNECT needs a host and a port"
		}
		return h, int(n), ""
	}
	if req.URL.Scheme != "http" || req.URL.Hostname() == "" {
		return "", 0, "this is a forward proxy: requests have a whole http URL"
	}
	if req.URL.Port() == "" {
		return req.URL.Hostname(), egress.HTTPPort, ""
	}
	n, err := strconv.ParseUint(req.URL.Port(), 10, 16)
	if err != nil || n == 0 {
		return "", 0, "the URL's port is not a port"
	}
	return req.URL.Hostname(), int(n), ""
}

// stripHopByHop removes what is meant for this hop and what tells of a client (RFC 9110,
// 7.6.1). An upgrade stays: goproxy carries WebSockets.
func stripHopByHop(h http.Header) {
	upgrade := strings.EqualFold(h.Get("Upgrade"), "websocket")
	for _, line := range h.Values("Connection") {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); !strings.EqualFold(name, "upgrade") || !upgrade {
				h.Del(name)
			}
		}
	}
	for _, name := range []string{"Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
		"Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"} {
		h.Del(name)
	}
	if upgrade {
		h.Set("Connection", "Upgrade")
	} else {
		h.Del("Connection")
		h.Del("Upgrade")
	}
	if _, ok := h["User-Agent"]; !ok {
		h.Set("User-Agent", "") // or the transport would put its own
	}
}

// newForward is goproxy with nothing of its defaults that reaches out by itself: no proxy
// from the environment, no interception, no log.
func newForward() *goproxy.ProxyHttpServer {
	f := goproxy.NewProxyHttpServer()
	f.Logger = discard()
	f.KeepAcceptEncoding = true
	f.Tr = &http.Transport{
		DialContext:            dialFromContext,
		DisableCompression:     true,
		IdleConnTimeout:        30 * time.Second,
		ResponseHeaderTimeout:  responseTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
	f.ConnectDial = nil
	f.ConnectDialWithReq = func(req *http.Request, network, addr string) (net.Conn, error) {
		return dialFromContext(req.Context(), network, addr)
	}
	f.ConnectionErrHandler = func(conn io.Writer, _ *goproxy.ProxyCtx, _ error) {
		_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}
	f.OnResponse().DoFunc(func(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
		if resp != nil {
			for _, name := range []string{"Proxy-Authenticate", "Proxy-Connection", "Keep-Alive", "Via"} {
				resp.Header.Del(name)
			}
			return resp
		}
		return goproxy.NewResponse(ctx.Req, goproxy.ContentTypeText, http.StatusBadGateway, "the origin did not answer\n")
	})
	return f
}
