package local

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestAnAnswerIsPassedOnAsItComes(t *testing.T) {
	got := make(chan struct{})
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-got: // only once the client has the first part
			fmt.Fprint(w, "two\n")
		case <-time.After(5 * time.Second):
		}
	}))
	t.Cleanup(o.Close)
	c := credentials(t, "u", "p")
	c.Loopback = true
	s := serve(t, c)
	proxy := &url.URL{Scheme: "http", Host: s.addr, User: url.UserPassword("u", "p")}
	resp, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}).Get(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for _, want := range []string{"one\n", "two\n"} {
		line, err := in.ReadString('\n')
		if err != nil || line != want {
			t.Fatalf("got %q (%v), want %q", line, err, want)
		}
		if want == "one\n" {
			close(got)
		}
	}
}

func TestAWebSocketPasses(t *testing.T) {
	o := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Connection"), "upgrade") || r.Header.Get("Proxy-Authorization") != "" {
			http.Error(w, fmt.Sprint(r.Header), http.StatusBadRequest)
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, rw)
	}))
	t.Cleanup(o.Close)
	cf := credentials(t, "u", "p")
	cf.Loopback = true
	s := serve(t, cf)
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(c, "GET %s/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nProxy-Authorization: Basic %s\r\n\r\n",
		o.URL, base64.StdEncoding.EncodeToString([]byte("u:p")))
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %+v (%v), want 101", resp, err)
	}
	fmt.Fprint(c, "ping")
	got := make([]byte, 4)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "ping" {
		t.Errorf("got %q (%v), want ping", got, err)
	}
}
