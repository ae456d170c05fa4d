package local_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/local"
)

var owner = backends.Owner{Installation: "01jd3v6q4m8e2x5y7z9abcdefg", HostID: "01jd3v6q4m8e2x5y7z9abcdefh"}

// uids are the bindings of these tests.
func ref(n int) backends.Ref {
	return backends.Ref{Proxy: fmt.Sprintf("p-%d", n), UID: fmt.Sprintf("01jd3v6q4m8e2x5y7z9abcde%02d", n)}
}

func backend(t *testing.T, dir string, change func(*local.Config)) *local.Backend {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cfg := local.Config{State: dir, AllowLoopback: true}
	if change != nil {
		change(&cfg)
	}
	b, err := local.New(cfg, local.Options{Owner: owner, Log: slog.New(slog.DiscardHandler), Exec: []string{self, childCommand}})
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return b
}

func ensure(t *testing.T, b backends.Backend, req backends.Request) backends.Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	i, err := b.Ensure(ctx, req, func(backends.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func pidOf(t *testing.T, i backends.Instance) int {
	t.Helper()
	pid, err := strconv.Atoi(i.ID)
	must(t, err)
	return pid
}

// echo is a TCP server that says everything back.
func echo(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// tunnel opens a CONNECT tunnel and returns the proxy's status.
func tunnel(t *testing.T, i backends.Instance, password string, port int) (net.Conn, int) {
	t.Helper()
	c, err := net.Dial("tcp", netip.AddrPortFrom(i.Addresses[0], uint16(i.Port)).String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	auth := base64.StdEncoding.EncodeToString([]byte("u:" + password))
	fmt.Fprintf(c, "CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n", port, auth)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	must(t, err)
	return c, resp.StatusCode
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(c, text)
	must(t, err)
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Errorf("got %q (%v), want %q", got, err, text)
	}
}

func TestRulesChangeWithoutDroppingATunnel(t *testing.T) {
	b, port := backend(t, newHost(t), nil), echo(t)
	req := request(ref(1))
	req.Access.ConnectPorts = []int{port}
	first := ensure(t, b, req)
	c, status := tunnel(t, first, "p", port)
	if status != 200 {
		t.Fatalf("got %d, want a tunnel", status)
	}
	say(t, c, "before")
	req.Generation, req.Access.Password = 2, "changed"
	second := ensure(t, b, req)
	if first.ID != second.ID {
		t.Errorf("the process is another: got %s, want %s", second.ID, first.ID)
	}
	if _, status := tunnel(t, second, "p", port); status != 407 {
		t.Errorf("the old password after Ensure: got %d, want 407", status)
	}
	if _, status := tunnel(t, second, "changed", port); status != 200 {
		t.Errorf("the new password after Ensure: got %d, want 200", status)
	}
	req.Generation, req.Access.ConnectPorts = 3, nil
	if _, status := tunnel(t, ensure(t, b, req), "changed", port); status != 403 {
		t.Errorf("a port that is not asked for any more: got %d, want 403", status)
	}
	say(t, c, "after")
}

func TestAPlainRequestPassesAndAnotherAgentAdopts(t *testing.T) {
	dir := newHost(t)
	req := request(ref(2))
	first := ensure(t, backend(t, dir, nil), req)
	again := backend(t, dir, nil)
	second := ensure(t, again, req)
	if first.ID != second.ID {
		t.Errorf("the next agent started another process: got %s, want %s", second.ID, first.ID)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	}()
	t.Cleanup(func() { l.Close() })
	proxy := &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", second.Port), User: url.UserPassword("u", "p")}
	resp, err := (&http.Client{Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return proxy, nil }}}).Get("http://" + l.Addr().String())
	must(t, err)
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "hello" {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
}

func TestAChildHasNothingOfTheAgent(t *testing.T) {
	t.Setenv("NATS_PASSWORD", "only the agent's")
	dir := newHost(t)
	held, err := os.Create(filepath.Join(t.TempDir(), "held"))
	must(t, err)
	defer held.Close()
	req := request(ref(3))
	req.Access.Password = "very-secret"
	pid := pidOf(t, ensure(t, backend(t, dir, nil), req))
	proc := fmt.Sprintf("/proc/%d/", pid)
	fds, err := os.ReadDir(proc + "fd")
	must(t, err)
	for _, fd := range fds {
		target, _ := os.Readlink(proc + "fd/" + fd.Name())
		if strings.HasPrefix(target, "/") && !strings.HasPrefix(target, dir) && target != "/dev/null" && !strings.HasPrefix(target, "/sys/fs/cgroup/") { // the Go runtime's
			t.Errorf("descriptor %s is %s", fd.Name(), target)
		}
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session: got %d (%v), want its own, %d", sid, err, pid)
	}
	for _, name := range []string{"environ", "cmdline"} {
		b, err := os.ReadFile(proc + name)
		if must(t, err); strings.Contains(string(b), "only the agent's") || strings.Contains(string(b), "very-secret") {
			t.Errorf("%s has a secret: %q", name, b)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, path := range files {
		b, err := os.ReadFile(path)
		must(t, err)
		st, err := os.Stat(path)
		if must(t, err); strings.Contains(string(b), "very-secret") || st.Mode().Perm() != 0o600 {
			t.Errorf("%s (%v) has the password, or may be read by others", path, st.Mode())
		}
	}
}

func TestAChildEndsWhenItsLockFileIsGone(t *testing.T) {
	dir := newHost(t)
	ensure(t, backend(t, dir, nil), request(ref(4)))
	must(t, os.Remove(file(dir, ref(4), ".lock")))
	eventually(t, "the child ends", func() bool { return len(processes(t, dir)) == 0 })
}

func TestAChildOverItsMemoryEnds(t *testing.T) {
	dir := newHost(t)
	pid := pidOf(t, ensure(t, backend(t, dir, nil), request(ref(14))))
	conf, err := os.ReadFile(file(dir, ref(14), ".conf"))
	must(t, err)
	less := strings.Replace(string(conf), `"memoryMiB": 512`, `"memoryMiB": 1`, 1)
	if less == string(conf) {
		t.Fatalf("no limit in the configuration:\n%s", conf)
	}
	must(t, os.WriteFile(file(dir, ref(14), ".conf"), []byte(less), 0o600))
	must(t, syscall.Kill(pid, syscall.SIGHUP))
	eventually(t, "the child ends", func() bool { return len(processes(t, dir)) == 0 })
	if log, err := os.ReadFile(file(dir, ref(14), ".log")); err != nil || !strings.Contains(string(log), "more memory than allowed") {
		t.Errorf("the log does not say why: %s (%v)", log, err)
	}
}

func TestALogThatIsTooLargeBeginsAnew(t *testing.T) {
	dir := newHost(t)
	b := backend(t, dir, nil)
	pid := pidOf(t, ensure(t, b, request(ref(15))))
	log, err := os.OpenFile(file(dir, ref(15), ".log"), os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = log.Write(make([]byte, 1<<20))
	must(t, errors.Join(err, log.Close()))
	eventually(t, "the log is put aside", func() bool {
		old, err1 := os.Stat(file(dir, ref(15), ".log.1"))
		now, err2 := os.Stat(file(dir, ref(15), ".log"))
		return err1 == nil && err2 == nil && old.Size() > 1<<20 && now.Size() < 1<<10
	})
	must(t, os.WriteFile(file(dir, ref(15), ".conf"), []byte("{"), 0o600))
	must(t, syscall.Kill(pid, syscall.SIGHUP))
	eventually(t, "the child writes to the new one", func() bool {
		now, err := os.ReadFile(file(dir, ref(15), ".log"))
		return err == nil && strings.Contains(string(now), "the former one stays in force")
	})
	must(t, os.Remove(file(dir, ref(15), ".conf")))
	must(t, b.Delete(t.Context(), ref(15)))
	if left := traces(t, dir, ref(15)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestASecondChildLeavesTheFirstAlone(t *testing.T) {
	dir := newHost(t)
	b := backend(t, dir, nil)
	i := ensure(t, b, request(ref(5)))
	self, err := os.Executable()
	must(t, err)
	if out, err := exec.Command(self, childCommand, dir, ref(5).UID).CombinedOutput(); err != nil {
		t.Errorf("the second child: %v\n%s", err, out)
	}
	if again := ensure(t, b, request(ref(5))); again.ID != i.ID {
		t.Errorf("got %s, want %s", again.ID, i.ID)
	}
}

func TestAChildThatHangsDelaysNobodyPastTheContext(t *testing.T) {
	dir := newHost(t)
	b := backend(t, dir, nil)
	req := request(ref(6))
	pid := pidOf(t, ensure(t, b, req))
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	req.Generation, req.Access.Password = 2, "other"
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := b.Ensure(ctx, req, func(backends.Progress) {})
	if !backends.Ended(err) || time.Since(began) > 2*time.Second {
		t.Errorf("ensure: got %v after %v, want the end of its context", err, time.Since(began))
	}
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, b.Delete(ctx, ref(6)))
	if left := traces(t, dir, ref(6)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAStrangerThatHoldsTheLockIsLeftAlone(t *testing.T) {
	dir := newHost(t)
	b := backend(t, dir, nil)
	req := request(ref(7))
	req.Desired = backends.Stopped
	ensure(t, b, req)
	self, err := os.Executable()
	must(t, err)
	stranger := exec.Command(self, "hold", file(dir, ref(7), ".lock"))
	out, err := stranger.StdoutPipe()
	must(t, err)
	must(t, stranger.Start())
	t.Cleanup(func() { _ = stranger.Process.Kill(); _ = stranger.Wait() })
	_, err = bufio.NewReader(out).ReadString('\n')
	must(t, err)
	req.Desired = backends.Running
	_, err = b.Ensure(t.Context(), req, func(backends.Progress) {})
	if backends.Class(err) != backends.ErrConflict {
		t.Errorf("ensure: got %v, want Conflict", err)
	}
	if err := b.Delete(t.Context(), ref(7)); backends.Class(err) != backends.ErrConflict {
		t.Errorf("delete: got %v, want Conflict", err)
	}
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the stranger was killed: %v", err)
	}
}

// hold locks a file until it is killed; the test binary runs it as another process.
func hold(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return err
	}
	fmt.Println("held")
	time.Sleep(time.Minute)
	return errors.Join(f.Close())
}
