//go:build real

package kubernetes

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proxyfleet/internal/backends"
)

// container is the container of a proxy's Pod, outside Kubernetes.
type container struct {
	t       *testing.T
	cmd     *exec.Cmd
	pid     int // of its first process, Squid
	address string
	client  *http.Client
	out     string
}

// startContainer runs what the Pod of a request would, with the node's side of its network
// at 10.203.x.1 and 10.203.x.9, of which the latter is the node's own.
func startContainer(t *testing.T, req backends.Request) (c *container, origin, node netip.Addr) {
	t.Helper()
	net := func(n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.203.%d.%d", os.Getpid()%250, n)) }
	origin, node = net(1), net(9)
	req.Access.AllowFrom = []netip.Prefix{netip.PrefixFrom(origin, 24).Masked()}
	b := &Backend{conf: Config{Namespace: "proxies"}.withDefaults(), host: hostConfig()}
	p, err := b.plan(req)
	check(t, err)
	s := b.secret(p, record{})
	pod := b.pod(p, s)
	box := pod.Spec.Containers[0]

	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "config"), 0o755))
	for _, item := range pod.Spec.Volumes[0].Secret.Items { // with mode and group as the kubelet gives them
		path := filepath.Join(dir, "config", item.Path)
		check(t, os.WriteFile(path, s.Data[item.Key], 0o600))
		check(t, os.Chmod(path, os.FileMode(*pod.Spec.Volumes[0].Secret.DefaultMode)))
		check(t, os.Chown(path, 0, int(*pod.Spec.SecurityContext.FSGroup)))
	}
	ours, theirs := fmt.Sprintf("pfa%d", os.Getpid()), fmt.Sprintf("pfb%d", os.Getpid())
	ip(t, "link", "add", ours, "type", "veth", "peer", "name", theirs)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", ours).Run() })
	ip(t, "addr", "add", origin.String()+"/24", "dev", ours)
	ip(t, "addr", "add", node.String()+"/24", "dev", ours)
	ip(t, "link", "set", ours, "up")

	c = &container{t: t, address: net(2).String(), out: filepath.Join(dir, "out")}
	user := strconv.FormatInt(*pod.Spec.SecurityContext.RunAsUser, 10)
	c.cmd = exec.Command("unshare", append([]string{"--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "testdata/container.sh", dir, user, theirs, c.address, origin.String()}, box.Command...)...)
	c.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, e := range box.Env {
		c.cmd.Env = append(c.cmd.Env, e.Name+"="+map[string]string{"status.podIPs": c.address, "status.hostIPs": node.String()}[e.ValueFrom.FieldRef.FieldPath])
	}
	reader, writer, err := os.Pipe() // as a container's log is
	check(t, err)
	check(t, writer.Chmod(0o666)) // runtimes give it to the container's user
	c.cmd.Stdout, c.cmd.Stderr = writer, writer
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(t, c.cmd.Start())
	_ = writer.Close()
	log, err := os.Create(c.out)
	check(t, err)
	go func() { _, _ = io.Copy(log, reader) }()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(c.out)
			t.Logf("the container said:\n%s", text)
		}
	})
	c.pid = c.child()
	ip(t, "link", "set", theirs, "netns", strconv.Itoa(c.pid))
	proxy := &url.URL{Scheme: "http", Host: c.address + ":" + fmt.Sprint(p.listen)}
	if req.Access.Username != "" {
		proxy.User = url.UserPassword(req.Access.Username, req.Access.Password.Reveal())
	}
	c.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
	c.awaitProbe(box.ReadinessProbe, p.listen)
	return c, origin, node
}

// child is the process that unshare has forked.
func (c *container) child() int {
	path := fmt.Sprintf("/proc/%d/task/%d/children", c.cmd.Process.Pid, c.cmd.Process.Pid)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		text, _ := os.ReadFile(path)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			return pid
		}
	}
	c.t.Fatal("unshare has no child")
	return 0
}

// awaitProbe waits until the Pod's own probe succeeds.
func (c *container) awaitProbe(p *corev1.Probe, port int) {
	c.t.Helper()
	if p.TCPSocket == nil || p.TCPSocket.Port.StrVal != portName {
		c.t.Fatalf("the readiness probe is %+v, want a connection to the proxy's port", p.ProbeHandler)
	}
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", net.JoinHostPort(c.address, fmt.Sprint(port)), time.Second); err == nil {
			_ = conn.Close()
			return
		}
	}
	c.t.Fatalf("the probe does not succeed: %v", err)
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve answers "hello" at an address, on a port that the rules let through.
func serve(t *testing.T, at netip.Addr) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
	check(t, err)
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// TestSquidServesAsThePodRunsIt starts the container's exact command as its user, on a read-only
// root, without capabilities, and goes through it.
func TestSquidServesAsThePodRunsIt(t *testing.T) {
	req := request(backends.Ref{Proxy: "crawl-1", UID: goldenUID})
	req.Access.Username, req.Access.Password, req.Access.Private = "crawler", `any "printable' $\ pass:word`, true
	c, origin, node := startContainer(t, req)

	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	check(t, err)
	for _, want := range []string{"Uid:\t13\t13\t13\t13", "Gid:\t13\t13\t13\t13", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("Squid runs without %q:\n%s", want, status)
		}
	}
	if out, err := exec.Command("nsenter", "--mount", "--pid", "--root", "--target", strconv.Itoa(c.pid), "touch", "/x").CombinedOutput(); err == nil || !strings.Contains(string(out), "Read-only") {
		t.Errorf("the root can be written: %v, %s", err, out)
	}
	ask := func(what, url string, want int) {
		t.Helper()
		resp, err := c.client.Get(url)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != want || want == http.StatusOK && string(body) != "hello" {
			t.Errorf("%s: got %d %.60q, want %d", what, resp.StatusCode, body, want)
		}
	}
	ask("an origin", serve(t, origin).URL, http.StatusOK)
	ask("the Pod's own address", "http://"+c.address+":8080/", http.StatusForbidden)
	ask("the node's address", serve(t, node).URL, http.StatusForbidden)
	ask("loopback", "http://127.0.0.1:8080/", http.StatusForbidden)
	c.client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: c.address + ":3128"})
	ask("without credentials", "http://"+origin.String()+":8080/", http.StatusProxyAuthRequired)
}

// TestATunnelEndsWithinThePodsGrace tells Squid to end, as the kubelet does, while a tunnel is
// open.
func TestATunnelEndsWithinThePodsGrace(t *testing.T) {
	req := request(backends.Ref{Proxy: "crawl-1", UID: goldenUID})
	origin := netip.MustParseAddr(fmt.Sprintf("10.203.%d.1", os.Getpid()%250))
	req.Access.Private = true
	req.Access.ConnectPorts = []int{8443}
	c, _, _ := startContainer(t, req)
	l, err := net.Listen("tcp", netip.AddrPortFrom(origin, 8443).String()) // in a network of the test's own
	check(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", c.address+":3128")
	check(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %s:8443 HTTP/1.1\r\nHost: x\r\n\r\n", origin)
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
		t.Fatalf("CONNECT: %q, %v", line, err)
	}
	pod := (&Backend{conf: Config{}.withDefaults()}).pod(plan{listen: DefaultPort}, &corev1.Secret{})
	grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds-pod.Spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
	began := time.Now()
	check(t, syscall.Kill(c.pid, syscall.SIGTERM))
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("Squid did not end well: %v", err)
	}
	if took := time.Since(began); took > grace {
		t.Errorf("Squid took %v to end, the kubelet waits %v", took, grace)
	}
}
