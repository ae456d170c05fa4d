package local

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends/passwd"
	"proxyfleet/internal/secret"
)

// served is a proxy in this process.
type served struct {
	*testing.T
	proxy *proxy
	addr  string
}

func serve(t *testing.T, c conf) *served {
	t.Helper()
	p := &proxy{}
	p.apply(c)
	s := httptest.NewUnstartedServer(nil)
	s.Config = newServer(p)
	s.Start()
	t.Cleanup(s.Close)
	return &served{t, p, s.Listener.Addr().String()}
}

// ask sends one raw request from a source address.
func (s *served) ask(from, method, target, auth string, headers ...string) (status int, answer string) {
	s.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	c, err := d.Dial("tcp", s.addr)
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	host := target
	if u, err := url.Parse(target); err == nil && u.Host != "" {
		host = u.Host
	}
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	if auth != "" {
		fmt.Fprintf(c, "Proxy-Authorization: Basic %s\r\n", base64.StdEncoding.EncodeToString([]byte(auth)))
	}
	for _, h := range headers {
		fmt.Fprintf(c, "%s\r\n", h)
	}
	fmt.Fprint(c, "\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		s.Fatalf("%s %s: %v", method, target, err)
	}
	defer resp.Body.Close()
	var b strings.Builder
	_ = resp.Header.Write(&b)
	if method != http.MethodConnect {
		body, _ := io.ReadAll(resp.Body)
		b.Write(body)
	}
	return resp.StatusCode, b.String()
}

func (s *served) want(status int, from, method, target, auth string) {
	s.Helper()
	if got, answer := s.ask(from, method, target, auth); got != status {
		s.Errorf("%s %s from %s: got %d, want %d\n%s", method, target, from, got, status, answer)
	}
}

func credentials(t *testing.T, username string, password secret.String) conf {
	t.Helper()
	hash, err := passwd.Hash("uid", username, password)
	if err != nil {
		t.Fatal(err)
	}
	return conf{Username: username, PasswordHash: hash}
}

// origin answers with what it was sent.
func origin(t *testing.T) (base string, port int) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Proxy-Authenticate", "Basic realm=evil")
		fmt.Fprintf(w, "from %s\n", r.RemoteAddr)
		_ = r.Header.Write(w)
	}))
	t.Cleanup(s.Close)
	_, text, _ := net.SplitHostPort(s.Listener.Addr().String())
	port, _ = strconv.Atoi(text)
	return s.URL + "/", port
}

func TestCredentialsAreNeeded(t *testing.T) {
	base, _ := origin(t)
	var all strings.Builder
	for c := byte(' '); c <= '~'; c++ {
		all.WriteByte(c)
	}
	c := credentials(t, "crawler", secret.String(all.String()))
	c.Loopback = true
	s := serve(t, c)
	status, answer := s.ask("127.0.0.1", "GET", base, "")
	if status != 407 || !strings.Contains(answer, `Proxy-Authenticate: Basic realm="proxy"`) {
		t.Errorf("without credentials: got %d, want 407 with a challenge\n%s", status, answer)
	}
	right := "crawler:" + all.String()
	for _, wrong := range []string{"crawler:", "crawler:x", right + "x", "Crawler:" + all.String(), ":" + all.String(), "crawler", "other:x"} {
		s.want(407, "127.0.0.1", "GET", base, wrong)
	}
	s.want(407, "127.0.0.1", "CONNECT", "127.0.0.1:443", "")
	s.want(407, "127.0.0.1", "GET", "http://10.0.0.1/", "")
	for range 3 { // hashed, then remembered
		s.want(200, "127.0.0.1", "GET", base, right)
		s.want(407, "127.0.0.1", "GET", base, "crawler:x")
	}
}

func TestNetworksAndCredentialsMustBothHold(t *testing.T) {
	base, _ := origin(t)
	c := credentials(t, "u", "p")
	c.Loopback, c.AllowFrom = true, []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	s := serve(t, c)
	s.want(200, "127.0.0.2", "GET", base, "u:p")
	s.want(407, "127.0.0.2", "GET", base, "")
	s.want(403, "127.0.0.3", "GET", base, "u:p")
	c.Username = ""
	s = serve(t, c)
	s.want(200, "127.0.0.2", "GET", base, "")
	s.want(403, "127.0.0.3", "GET", base, "")
}

func TestNothingTellsOfTheClientOrTheProxy(t *testing.T) {
	base, _ := origin(t)
	c := credentials(t, "u", "p")
	c.Loopback = true
	status, answer := serve(t, c).ask("127.0.0.1", "GET", base, "u:p", "Via: 1.1 x", "X-Forwarded-For: 10.1.1.1", "Forwarded: for=10.1.1.1",
		"X-Real-IP: 10.1.1.1", "Connection: X-Hop, close", "X-Hop: 1", "Keep-Alive: 5", "Te: trailers", "Proxy-Connection: x", "X-Stays: yes", "Accept-Encoding: br")
	if status != 200 {
		t.Fatalf("got %d\n%s", status, answer)
	}
	_, sent, _ := strings.Cut(answer, "from 127.")
	for _, name := range []string{"Via", "Forwarded", "X-Real", "X-Hop", "Keep-Alive", "Te:", "Proxy-", "User-Agent", "Go-http-client"} {
		if strings.Contains(sent, name) {
			t.Errorf("the origin sees %s:\n%s", name, sent)
		}
	}
	for _, name := range []string{"X-Stays: yes", "Accept-Encoding: br"} {
		if !strings.Contains(sent, name) {
			t.Errorf("the origin does not see %s:\n%s", name, sent)
		}
	}
	if strings.Contains(answer, "realm=evil") {
		t.Errorf("an origin can ask for the proxy's credentials:\n%s", answer)
	}
}

func TestDestinationsAreRefusedUnlessAsked(t *testing.T) {
	c := credentials(t, "u", "p")
	closed := serve(t, c)
	c.Private = true
	private := serve(t, c)
	for _, host := range []string{"127.0.0.1", "127.9.9.9", "localhost", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:8.8.8.8]",
		"169.254.169.254", "[fe80::1]", "[fe80::1%25lo]", "[fd00:ec2::254]", "100.100.100.200", "224.0.0.1", "255.255.255.255"} {
		for _, s := range []*served{closed, private} {
			s.want(403, "127.0.0.1", "GET", "http://"+host+":8080/", "u:p")
		}
		if !strings.Contains(host, "%") {
			closed.want(403, "127.0.0.1", "CONNECT", host+":443", "u:p")
		}
	}
	for _, host := range []string{"10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "[fd12:3456::1]"} {
		closed.want(403, "127.0.0.1", "GET", "http://"+host+":8080/", "u:p")
	}
	own, err := machine.get()
	if err != nil || len(own) == 0 {
		t.Fatalf("own addresses: %v %v", own, err)
	}
	for _, a := range own {
		if a.Is4() {
			private.want(403, "127.0.0.1", "GET", "http://"+a.String()+":8080/", "u:p")
		}
	}
}

func TestPortsAndMethods(t *testing.T) {
	c := credentials(t, "u", "p")
	_, port := origin(t)
	c.Loopback = true
	s := serve(t, c)
	s.want(403, "127.0.0.1", "GET", "http://127.0.0.1:25/", "u:p")
	s.want(403, "127.0.0.1", "CONNECT", fmt.Sprintf("127.0.0.1:%d", port), "u:p")
	s.want(403, "127.0.0.1", "TRACE", fmt.Sprintf("http://127.0.0.1:%d/", port), "u:p")
	s.want(502, "127.0.0.1", "CONNECT", "127.0.0.9:443", "u:p") // allowed, and nothing listens
	s.want(400, "127.0.0.1", "GET", "/", "u:p")
	s.want(400, "127.0.0.1", "GET", "ftp://127.0.0.1/", "u:p")
	s.want(400, "127.0.0.1", "CONNECT", "127.0.0.1:0", "u:p")
	s.want(502, "127.0.0.1", "GET", "http://no-such-host.invalid/", "u:p")
	c.ConnectPorts = []int{port}
	serve(t, c).want(200, "127.0.0.1", "CONNECT", fmt.Sprintf("127.0.0.1:%d", port), "u:p")
}

func TestEveryRequestNeedsCredentials(t *testing.T) {
	s := serve(t, credentials(t, "u", "p"))
	s.want(407, "127.0.0.1", "OPTIONS", "*", "")
	s.want(400, "127.0.0.1", "OPTIONS", "*", "u:p")
}

func TestARefusalDoesNotWaitForABodyThatNeverComes(t *testing.T) {
	s := serve(t, credentials(t, "u", "p"))
	for _, c := range []struct {
		status       int
		auth, length string
	}{
		{407, "", "Content-Length: 1000"},
		{407, "", "Transfer-Encoding: chunked"},
		{403, "u:p", "Content-Length: 1000"},
	} {
		if got, answer := s.ask("127.0.0.1", "POST", "http://127.0.0.1/", c.auth, c.length); got != c.status {
			t.Errorf("%s: got %d, want %d\n%s", c.length, got, c.status, answer)
		}
	}
}

func TestWhatWasResolvedIsDialledAndAllOfItMustBeAllowed(t *testing.T) {
	base, port := origin(t)
	_ = base
	c := credentials(t, "u", "p")
	c.Loopback = true
	s := serve(t, c)
	answers := [][]netip.Addr{{netip.MustParseAddr("127.0.0.1")}, {netip.MustParseAddr("10.0.0.1")}}
	asked := 0
	s.proxy.current.Load().dialer.lookup = func(context.Context, string) ([]netip.Addr, error) {
		asked++
		return answers[min(asked, len(answers))-1], nil
	}
	target := fmt.Sprintf("http://rebind.example:%d/", port)
	s.want(200, "127.0.0.1", "GET", target, "u:p")
	if asked != 1 {
		t.Errorf("resolved %d times for one request, want once", asked)
	}
	s.want(403, "127.0.0.1", "GET", target, "u:p")
	answers = [][]netip.Addr{{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254")}}
	s.want(403, "127.0.0.1", "GET", target, "u:p")
}

func TestItLeavesByTheSourceAddressOfTheDestinationsFamily(t *testing.T) {
	c := credentials(t, "u", "p")
	c.Loopback, c.Sources = true, []netip.Addr{netip.MustParseAddr("127.0.0.77"), netip.MustParseAddr("::1")}
	s := serve(t, c)
	base, _ := origin(t)
	if _, answer := s.ask("127.0.0.1", "GET", base, "u:p"); !strings.Contains(answer, "from 127.0.0.77:") {
		t.Errorf("the origin sees another source address:\n%s", answer)
	}
	six := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "from "+r.RemoteAddr) }))
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	six.Listener.Close()
	six.Listener = l
	six.Start()
	t.Cleanup(six.Close)
	if _, answer := s.ask("127.0.0.1", "GET", six.URL+"/", "u:p"); !strings.Contains(answer, "from [::1]:") {
		t.Errorf("the IPv6 origin was not reached:\n%s", answer)
	}
	only4 := dialer{sources: c.Sources[:1], lookup: lookup, own: machine}
	if _, err := only4.resolve(t.Context(), "2600::1"); err == nil {
		t.Error("an IPv6 destination is dialled from an IPv4 address")
	}
}

func TestHeadersAreLimited(t *testing.T) {
	s := serve(t, credentials(t, "u", "p"))
	if got, _ := s.ask("127.0.0.1", "GET", "http://127.0.0.1/", "u:p", "X: "+strings.Repeat("x", 2*maxHeader)); got != 431 {
		t.Errorf("got %d, want 431", got)
	}
}
