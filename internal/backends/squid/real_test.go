//go:build real

package squid

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/passwd"
	"proxyfleet/internal/secret"
)

// allPrintable has every printable ASCII character once.
func allPrintable() string {
	var b strings.Builder
	for c := byte(' '); c <= '~'; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

func TestSquidParsesWhatIsRendered(t *testing.T) {
	for name, p := range goldens {
		t.Run(name, func(t *testing.T) {
			p.OwnAddresses = ""
			writeFiles(t, t.TempDir(), p)
		})
	}
}

func TestTheHelperTakesAnyPrintablePassword(t *testing.T) {
	passwords := []string{allPrintable(), "12345678", "123456789", strings.Repeat("a", 72), strings.Repeat("a", 73), strings.Repeat("z", 255)}
	for c := byte(' '); c <= '~'; c++ {
		passwords = append(passwords, string(c))
	}
	path := filepath.Join(t.TempDir(), "passwd")
	var file, questions bytes.Buffer
	for i, pw := range passwords {
		hash, err := passwd.Hash(uid, fmt.Sprintf("user%d", i), secret.String(pw))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&file, "user%d:%s\n", i, hash)
		fmt.Fprintf(&questions, "user%d %s\n", i, helperEscape(pw))
		fmt.Fprintf(&questions, "user%d %s\n", i, helperEscape(pw+"x"))
	}
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(DefaultAuthHelper, path)
	cmd.Stdin = &questions
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(answers) != 2*len(passwords) {
		t.Fatalf("got %d answers, want %d", len(answers), 2*len(passwords))
	}
	for i, pw := range passwords {
		if !strings.HasPrefix(answers[2*i], "OK") || !strings.HasPrefix(answers[2*i+1], "ERR") {
			t.Errorf("password %q: got %q, and %q for a wrong one", pw, answers[2*i], answers[2*i+1])
		}
	}
}

// helperEscape writes a word as Squid does for its helpers (RFC 1738).
func helperEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// writeFiles renders p into dir and has Squid parse it.
func writeFiles(t *testing.T, dir string, p Params) (confPath string) {
	t.Helper()
	p.Passwords = filepath.Join(dir, "passwd")
	p.CacheLog = filepath.Join(dir, "cache.log")
	p.PIDFile = filepath.Join(dir, "squid.pid")
	f, err := Render(p)
	if err != nil {
		t.Fatal(err)
	}
	confPath = filepath.Join(dir, "squid.conf")
	for path, data := range map[string][]byte{confPath: f.Conf, p.Passwords: f.Passwords} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{filepath.Dir(dir), dir} { // Squid and its helper give up root
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("squid", "-k", "parse", "-f", confPath).CombinedOutput()
	if err != nil {
		t.Fatalf("squid -k parse: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "HTTP requires the use of Via") {
			continue // it is off on purpose
		}
		if strings.Contains(line, "WARNING") || strings.Contains(line, "ERROR") || strings.Contains(line, "FATAL") {
			t.Errorf("squid -k parse: %s", line)
		}
	}
	return confPath
}

// running is a Squid in the foreground with rendered files.
type running struct {
	t    *testing.T
	addr string
	auth string // of right credentials, ready for a header
	dir  string
}

func start(t *testing.T, p Params) *running {
	t.Helper()
	p.UID = uid
	p.Port = freePort(t)
	p.MaxFileDescriptors = 1024
	dir := t.TempDir()
	conf := writeFiles(t, dir, p)
	cmd := exec.Command("squid", "-N", "-f", conf, "-n", fmt.Sprintf("t%d", p.Port))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "cache.log"))
			t.Logf("squid said:\n%s\n%s", said.String(), log)
		}
	})
	r := &running{t: t, addr: net.JoinHostPort("127.0.0.1", fmt.Sprint(p.Port)), dir: dir}
	if p.Access.Username != "" {
		r.auth = base64.StdEncoding.EncodeToString([]byte(p.Access.Username + ":" + p.Access.Password.Reveal()))
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := answers(r.addr)
		if err == nil {
			return r
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(dir, "cache.log"))
			t.Fatalf("squid does not listen: %v\n%s\n%s", err, said.String(), log)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// answers asks for anything: that a port accepts does not mean that Squid does.
func answers(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && !strings.HasPrefix(line, "HTTP/") {
		err = fmt.Errorf("answered %q", line) // on Linux a connection may even be to itself
	}
	return err
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// ask sends one raw request from a source address and returns the status and the rest.
func (r *running) ask(from, method, target, auth string) (status int, answer string) {
	r.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second}
	c, err := d.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	host := target
	if _, rest, ok := strings.Cut(target, "://"); ok {
		host, _, _ = strings.Cut(rest, "/")
	}
	fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", method, target, host)
	if auth != "" {
		fmt.Fprintf(c, "Proxy-Authorization: Basic %s\r\n", auth)
	}
	fmt.Fprint(c, "\r\n")
	in := bufio.NewReader(c)
	first, err := in.ReadString('\n')
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, target, err)
	}
	if _, err := fmt.Sscanf(first, "HTTP/1.1 %d", &status); err != nil {
		r.t.Fatalf("%s %s: %q", method, target, first)
	}
	if method == "CONNECT" && status == 200 {
		return status, ""
	}
	rest := make([]byte, 64<<10)
	n := 0
	for n < len(rest) {
		m, err := in.Read(rest[n:])
		n += m
		if err != nil {
			break
		}
	}
	return status, string(rest[:n])
}

// machineAddress is one of this machine's addresses that is as wanted, which the tests need.
func machineAddress(t *testing.T, want func(netip.Addr) bool, kind string) netip.Addr {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && want(p.Addr()) {
			return p.Addr()
		}
	}
	t.Fatalf("this machine has no %s address; add one to lo for these tests", kind)
	return netip.Addr{}
}

var credentials = backends.Access{Username: "crawler", Password: "secret"}
