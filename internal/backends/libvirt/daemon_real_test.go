//go:build real

package libvirt

import (
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// daemon is a libvirtd of a test's own, with QEMU, a network "default" and a pool
// "default". Its guests never boot: they have an empty disk.
type daemon struct{ dir string }

// startDaemon runs testdata/daemon.sh until t ends.
func startDaemon(t testing.TB) daemon {
	t.Helper()
	// Short, since sockets' paths are; and open to QEMU's user on the way, unlike t.TempDir.
	dir, err := os.MkdirTemp("/tmp", "pflv")
	must(t, err)
	must(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := daemon{dir}
	out, err := os.Create(filepath.Join(dir, "out"))
	must(t, err)
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "testdata/daemon.sh", dir)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The daemon dies with the thread that started it, so that thread is kept.
	started, stop, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		<-stop
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	must(t, <-started)
	t.Cleanup(func() {
		close(stop)
		<-ended
		if t.Failed() {
			for _, f := range []string{"out", "libvirtd.log"} {
				text, _ := os.ReadFile(filepath.Join(dir, f))
				t.Logf("%s:\n%s", f, text[max(0, len(text)-4000):])
			}
		}
	})
	d.wait(t)
	must(t, os.Mkdir(d.poolDir(), 0o711))
	d.virsh(t, "net-start", "default")
	d.virsh(t, "pool-define-as", "default", "dir", "--target", d.poolDir())
	d.virsh(t, "pool-start", "default")
	d.qemuImg(t, "create", "-q", "-f", "qcow2", d.image(), "1M")
	return d
}

func (d daemon) poolDir() string { return filepath.Join(d.dir, "pool") }
func (d daemon) image() string   { return filepath.Join(d.dir, "empty.qcow2") }
func (d daemon) uri() string {
	return "qemu:///system?socket=" + filepath.Join(d.dir, "sock", "libvirt-sock")
}
func (d daemon) place() place { return place{d.poolDir()} }

// wait returns when the daemon answers.
func (d daemon) wait(t testing.TB) {
	t.Helper()
	for range 200 {
		if exec.Command("virsh", "-c", d.uri(), "list").Run() == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("libvirtd did not start")
}

func (d daemon) try(args ...string) (string, error) {
	out, err := exec.Command("virsh", append([]string{"-q", "-c", d.uri()}, args...)...).CombinedOutput()
	return string(out), err
}

func (d daemon) virsh(t testing.TB, args ...string) string {
	t.Helper()
	out, err := d.try(args...)
	if err != nil {
		t.Fatalf("virsh %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (d daemon) qemuImg(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// pid is the process whose command line has text, seen from outside. A process that it has
// forked, and that has yet to become another program, has it as well, and is left out.
func pid(t testing.TB, text string) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	parents := map[int]int{}
	for _, stat := range stats {
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		if !strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), text) {
			continue
		}
		about, _ := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(about), ") ") // pid (name) state parent …
		var n, parent int
		var state string
		if _, err := fmt.Sscanf(stat, "/proc/%d/", &n); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(rest, &state, &parent); err == nil {
			parents[n] = parent
		}
	}
	for n, parent := range parents {
		if _, forked := parents[parent]; !forked {
			return n
		}
	}
	t.Fatalf("no process has %q in its command line", text)
	return 0
}

func (d daemon) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	must(t, syscall.Kill(pid(t, "libvirtd --config "+d.dir), s))
}

// down ends the daemon and keeps it down until up.
func (d daemon) down(t testing.TB) (up func()) {
	t.Helper()
	flag := filepath.Join(d.dir, "down")
	must(t, os.WriteFile(flag, nil, 0o600))
	d.signal(t, syscall.SIGKILL)
	return func() {
		must(t, os.Remove(flag))
		d.wait(t)
	}
}

// traces is everything that is there under the name of ref.
func (d daemon) traces(t testing.TB, ref backends.Ref) []string {
	n := backends.InstanceName(ref.UID)
	var found []string
	for _, pattern := range []string{"/*", "/.*", "/" + images.StateDir + "/*", "/" + images.StateDir + "/.*"} {
		names, err := filepath.Glob(d.poolDir() + pattern)
		must(t, err)
		for _, f := range names {
			if strings.Contains(filepath.Base(f), n) {
				found = append(found, f)
			}
		}
	}
	for dom := range strings.FieldsSeq(d.virsh(t, "list", "--all", "--name")) {
		if dom == n {
			found = append(found, "domain "+dom)
		}
	}
	return found
}

// foreignDomain defines a domain that the backend did not make, with a mark where there is
// one.
func (d daemon) foreignDomain(t testing.TB, ref backends.Ref, mark backends.Mark) (look func() string) {
	t.Helper()
	n := backends.InstanceName(ref.UID)
	metadata := ""
	if mark.UID != "" {
		metadata = "<metadata>" + domainMark{Mark: mark, Generation: 1, Port: 3128}.element() + "</metadata>"
	}
	text := "<domain type='qemu'><name>" + n + "</name>" + metadata +
		"<memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"
	must(t, xml.Unmarshal([]byte(text), new(struct{})))
	file := filepath.Join(t.TempDir(), "domain.xml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	d.virsh(t, "define", file)
	t.Cleanup(func() { _, _ = d.try("undefine", n) })
	return func() string {
		out, err := d.try("dumpxml", n)
		return fmt.Sprint(out, err)
	}
}

// foreignVolume puts a file under the disk's name, and a marker where there is a mark.
func (d daemon) foreignVolume(t testing.TB, ref backends.Ref, mark backends.Mark) (look func() string) {
	t.Helper()
	n, p := backends.InstanceName(ref.UID), d.place()
	must(t, os.WriteFile(p.disk(n), []byte("somebody's"), 0o600))
	t.Cleanup(func() { _ = os.Remove(p.disk(n)) })
	if mark.UID != "" {
		must(t, os.MkdirAll(p.state(), 0o711))
		m := marker{Installation: mark.Installation, HostID: mark.HostID, Proxy: mark.Proxy, UID: mark.UID, CreatedAt: mark.CreatedAt}
		must(t, m.write(p.marker(n)))
		t.Cleanup(func() { _ = os.Remove(p.marker(n)) })
	}
	return func() string {
		a, err1 := os.ReadFile(p.disk(n))
		b, _ := os.ReadFile(p.marker(n))
		return fmt.Sprint(string(a), err1, string(b))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openBase is the base that the disk of req was made on.
func openBase(t testing.TB, h host, req backends.Request) (images.Base, error) {
	t.Helper()
	m, _, err := readMarker(h.place().marker(backends.InstanceName(req.UID)))
	must(t, err)
	return images.Find(h.poolDir(), m.Base, m.BaseFormat)
}
