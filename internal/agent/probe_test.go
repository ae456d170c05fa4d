package agent

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/elazarl/goproxy"

	"proxyfleet/internal/bus"
)

// serveTCP answers each connection with handle until the test ends.
func serveTCP(t *testing.T, handle func(net.Conn)) bus.Address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer func() { _ = c.Close() }(); handle(c) }()
		}
	}()
	at := netip.MustParseAddrPort(l.Addr().String())
	return bus.Address{Address: at.Addr().String(), Family: "ipv4", Port: int(at.Port())}
}

func answerWith(text string) func(net.Conn) {
	return func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = c.Write([]byte(text))
		}
	}
}

// hold keeps a connection without a word until the other side ends it.
func hold(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func TestWhatCountsAsAnAnswer(t *testing.T) {
	closed := serveTCP(t, func(net.Conn) {})
	for name, c := range map[string]struct {
		handle func(net.Conn)
		want   string // in the error; empty: it answers
	}{
		"it wants credentials":    {answerWith("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"), ""},
		"it refuses":              {answerWith("HTTP/1.1 403 Forbidden\r\n\r\n"), ""},
		"it fails upstream":       {answerWith("HTTP/1.1 502 Bad Gateway\r\n\r\n"), ""},
		"it speaks something":     {answerWith("SSH-2.0-OpenSSH_10\r\n"), "no HTTP answer"},
		"it hangs up":             {func(net.Conn) {}, "proxy"},
		"it accepts and is quiet": {hold, "i/o timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			err := probe(t.Context(), []bus.Address{serveTCP(t, c.handle)}, 200*time.Millisecond)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	t.Run("one of two addresses is enough", func(t *testing.T) {
		good := serveTCP(t, answerWith("HTTP/1.1 407 x\r\n\r\n"))
		if err := probe(t.Context(), []bus.Address{closed, good}, time.Second); err != nil {
			t.Error(err)
		}
	})
	t.Run("a real proxy", func(t *testing.T) {
		p := goproxy.NewProxyHttpServer()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: p, ReadHeaderTimeout: time.Second}
		go func() { _ = srv.Serve(l) }()
		t.Cleanup(func() { _ = srv.Close() })
		at := netip.MustParseAddrPort(l.Addr().String())
		if err := probe(t.Context(), []bus.Address{{Address: at.Addr().String(), Port: int(at.Port())}}, time.Second); err != nil {
			t.Error(err)
		}
	})
	t.Run("it ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := probe(ctx, []bus.Address{serveTCP(t, hold)}, time.Minute)
		if err == nil || time.Since(start) > 900*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}
