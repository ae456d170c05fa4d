//go:build real

package squid

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proxyfleet/internal/secret"
)

// origin is a web server on an address of this machine, which says what it was sent.
func origin(t *testing.T, a netip.Addr) (base string, seen *http.Header) {
	t.Helper()
	seen = &http.Header{}
	l, err := net.Listen("tcp", netip.AddrPortFrom(a, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*seen = r.Header.Clone()
		fmt.Fprint(w, "origin says hello")
	})}}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL + "/", seen
}

var loopback = netip.MustParseAddr("127.0.0.1")

func (r *running) want(status int, from, method, target, auth string) {
	r.t.Helper()
	if got, answer := r.ask(from, method, target, auth); got != status {
		r.t.Errorf("%s %s from %s: got %d, want %d\n%.300s", method, target, from, got, status, answer)
	}
}

func TestCredentialsAreNeeded(t *testing.T) {
	base, seen := origin(t, loopback)
	access := credentials
	access.Username = strings.ReplaceAll(strings.TrimSpace(allPrintable()), ":", "")[1:]
	access.Username = strings.TrimLeft(access.Username, `"#`)
	access.Password = secret.String(allPrintable())
	r := start(t, Params{Access: access, Loopback: true})
	status, answer := r.ask("127.0.0.1", "GET", base, "")
	if status != 407 || !strings.Contains(answer, "Proxy-Authenticate: Basic") {
		t.Errorf("without credentials: got %d, want 407 with Proxy-Authenticate", status)
	}
	r.want(407, "127.0.0.1", "GET", base, "d3Jvbmc6d3Jvbmc=")
	r.want(407, "127.0.0.1", "CONNECT", "127.0.0.1:443", "")
	r.want(407, "127.0.0.1", "GET", "http://10.0.0.1/", "")
	status, answer = r.ask("127.0.0.1", "GET", base, r.auth)
	if status != 200 || !strings.Contains(answer, "origin says hello") {
		t.Fatalf("with every printable character in name and password: got %d\n%s", status, answer)
	}
	for _, name := range []string{"Via", "X-Forwarded-For", "Forwarded", "Proxy-Authorization", "X-Real-Ip", "Cache-Control"} {
		if v := seen.Get(name); v != "" && name != "Cache-Control" {
			t.Errorf("the origin sees %s: %s", name, v)
		}
	}
	for _, name := range []string{"Via:", "X-Cache", "X-Squid", "squid/"} {
		if strings.Contains(answer, name) {
			t.Errorf("the client sees %s:\n%s", name, answer)
		}
	}
	r.want(403, "127.0.0.1", "TRACE", base, r.auth)
	r.want(403, "127.0.0.1", "GET", "http://"+r.addr+"/squid-internal-mgr/info", r.auth)
	r.want(403, "127.0.0.1", "GET", "cache_object://127.0.0.1/info", r.auth)
	r.want(403, "127.0.0.1", "GET", "ftp://127.0.0.1:8021/", r.auth)
	for _, dir := range []string{r.dir, "/var/log/squid"} {
		for _, name := range []string{"access.log", "store.log"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil && strings.Contains(string(b), base) {
				t.Errorf("%s records requests", name)
			}
		}
	}
}

func TestNetworksAndCredentialsMustBothHold(t *testing.T) {
	base, _ := origin(t, loopback)
	access := credentials
	access.AllowFrom = networks("127.0.0.2/32")
	r := start(t, Params{Access: access, Loopback: true})
	r.want(200, "127.0.0.2", "GET", base, r.auth)
	r.want(407, "127.0.0.2", "GET", base, "")
	r.want(403, "127.0.0.3", "GET", base, r.auth)

	access.Username, access.Password = "", ""
	r = start(t, Params{Access: access, Loopback: true})
	r.want(200, "127.0.0.2", "GET", base, "")
	r.want(403, "127.0.0.3", "GET", base, "")
}

func TestDestinationsAreRefusedUnlessAsked(t *testing.T) {
	always := []string{
		"127.0.0.1", "127.9.9.9", "localhost", "2130706433", "0x7f000001", "127.1", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]",
		"169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255", "[ff02::1]",
		"[64:ff9b::7f00:1]", "[2002:7f00:1::1]",
	}
	private := []string{"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "[fd12:3456::1]"}
	closed := start(t, Params{Access: credentials})
	for _, host := range append(always, private...) {
		closed.want(403, "127.0.0.1", "GET", "http://"+host+":8080/", closed.auth)
		closed.want(403, "127.0.0.1", "CONNECT", host+":443", closed.auth)
	}
	own := machineAddress(t, func(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() && a.IsPrivate() }, "private")
	base, _ := origin(t, own)
	closed.want(403, "127.0.0.1", "GET", base, closed.auth)

	access := credentials
	access.Private = true
	open := start(t, Params{Access: access})
	open.want(200, "127.0.0.1", "GET", base, open.auth)
	for _, host := range always {
		if host == "[::ffff:10.0.0.1]" {
			continue // Squid reads it as 10.0.0.1, which is asked for
		}
		open.want(403, "127.0.0.1", "GET", "http://"+host+":8080/", open.auth)
	}
	self := start(t, Params{Access: access, Own: []netip.Addr{own}})
	self.want(403, "127.0.0.1", "GET", base, self.auth)

	list := filepath.Join(t.TempDir(), "own")
	if err := os.WriteFile(list, []byte(own.String()+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := start(t, Params{Access: access, OwnAddresses: list})
	file.want(403, "127.0.0.1", "GET", base, file.auth)
}

func TestPublicDestinationsPass(t *testing.T) {
	public := machineAddress(t, func(a netip.Addr) bool { return a.IsGlobalUnicast() && !a.IsPrivate() }, "public or documentation")
	base, _ := origin(t, public)
	r := start(t, Params{Access: credentials})
	r.want(200, "127.0.0.1", "GET", base, r.auth)
}

func TestConnectGoesToTLSPortsAndThoseAskedFor(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "over TLS") }))
	t.Cleanup(s.Close)
	u, _ := url.Parse(s.URL)
	closed := start(t, Params{Access: credentials, Loopback: true})
	closed.want(403, "127.0.0.1", "CONNECT", u.Host, closed.auth)
	closed.want(403, "127.0.0.1", "CONNECT", "127.0.0.1:22", closed.auth)
	closed.want(403, "127.0.0.1", "GET", "http://127.0.0.1:25/", closed.auth)
	closed.want(503, "127.0.0.1", "CONNECT", "127.0.0.9:443", closed.auth) // allowed, and nothing listens

	access := credentials
	var port int
	fmt.Sscan(u.Port(), &port)
	access.ConnectPorts = []int{port}
	r := start(t, Params{Access: access, Loopback: true})
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: r.addr, User: url.UserPassword(access.Username, access.Password.Reveal())})
	answer, err := (&http.Client{Transport: transport}).Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); string(body) != "over TLS" {
		t.Errorf("got %q", body)
	}
	r.want(403, "127.0.0.1", "CONNECT", "127.0.0.1:22", r.auth)
}
