package libvirttest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

//go:embed daemon.sh
var script []byte

// Daemon is a libvirtd of a test's own, with a network "default" and a running pool
// "default". It is known by its directory alone, so that another process can use it too.
type Daemon struct {
	// Dir holds all its state. The path is short, since sockets' paths are.
	Dir string
}

// Start runs a daemon until t ends; its guests end with it. When t has failed, the end of
// the daemon's log is logged.
func Start(t testing.TB) Daemon { return start(t, func(Daemon) {}) }

// start is Start with something done before the daemon is.
func start(t testing.TB, prepare func(Daemon)) Daemon {
	t.Helper()
	// Open to QEMU's user on the way, unlike t.TempDir.
	dir, err := os.MkdirTemp("/tmp", "pflv")
	must(t, err)
	must(t, os.Chmod(dir, 0o711))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := Daemon{Dir: dir}
	must(t, os.WriteFile(d.path("daemon.sh"), script, 0o600))
	prepare(d)
	d.run(t)
	d.wait(t)
	must(t, os.MkdirAll(d.PoolDir(), 0o711))
	d.Virsh(t, "net-start", "default")
	d.Virsh(t, "pool-define-as", "default", "dir", "--target", d.PoolDir())
	d.Virsh(t, "pool-start", "default")
	QemuImg(t, "create", "-q", "-f", "qcow2", d.Image(), "1M")
	return d
}

// run starts daemon.sh in its namespaces.
func (d Daemon) run(t testing.TB) {
	t.Helper()
	out, err := os.Create(d.path("out"))
	must(t, err)
	cmd := exec.Command("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", d.path("daemon.sh"), d.Dir)
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
		_ = out.Close()
		if t.Failed() {
			for _, f := range []string{"out", "libvirtd.log"} {
				text, _ := os.ReadFile(d.path(f))
				t.Logf("%s:\n%s", f, text[max(0, len(text)-4000):])
			}
		}
	})
}

// wait returns when the daemon answers.
func (d Daemon) wait(t testing.TB) {
	t.Helper()
	for range 200 {
		if exec.Command("virsh", "-c", d.URI(), "list").Run() == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("libvirtd did not start")
}

func (d Daemon) path(name string) string { return filepath.Join(d.Dir, name) }

// URI is what libvirt's clients connect to. It works from any network namespace.
func (d Daemon) URI() string { return "qemu:///system?socket=" + d.path("sock/libvirt-sock") }

// SSHURI is URI for an agent that reaches the daemon's host by SSH.
func (d Daemon) SSHURI(s *SSHD) string {
	return "qemu+ssh://root@" + s.Address + "/system?socket=" + d.path("sock/libvirt-sock")
}

// PoolDir is the directory of the pool "default".
func (d Daemon) PoolDir() string { return d.path("pool") }

// Image is a qcow2 file with an empty disk of 1 MiB: a guest that has it never boots, and
// runs for ever.
func (d Daemon) Image() string { return d.path("empty.qcow2") }

// TryVirsh runs virsh against the daemon and returns all that it printed.
func (d Daemon) TryVirsh(args ...string) (string, error) {
	out, err := exec.Command("virsh", append([]string{"-q", "-c", d.URI()}, args...)...).CombinedOutput()
	return string(out), err
}

// Virsh is TryVirsh for what has to work.
func (d Daemon) Virsh(t testing.TB, args ...string) string {
	t.Helper()
	out, err := d.TryVirsh(args...)
	if err != nil {
		t.Fatalf("virsh %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Define defines a domain from its XML, as somebody else than the backend does.
func (d Daemon) Define(t testing.TB, xml string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "domain.xml")
	must(t, os.WriteFile(file, []byte(xml), 0o600))
	d.Virsh(t, "define", file)
}

// Signal sends a signal to libvirtd. One that was ended is started again at once, unless
// it is down; its guests live on.
func (d Daemon) Signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	must(t, syscall.Kill(d.pid(t), s))
}

// Down ends libvirtd with SIGKILL and keeps it down until up is called, which returns when
// it answers again.
func (d Daemon) Down(t testing.TB) (up func()) {
	t.Helper()
	flag := d.path("down")
	must(t, os.WriteFile(flag, nil, 0o600))
	d.Signal(t, syscall.SIGKILL)
	return func() {
		t.Helper()
		must(t, os.Remove(flag))
		d.wait(t)
	}
}

// Reboot cuts the power: guests and libvirtd end, and with them what stands in /run. When it
// returns libvirtd answers again, with its network and its pool; no guest runs.
func (d Daemon) Reboot(t testing.TB) {
	t.Helper()
	domains := strings.Fields(d.Virsh(t, "list", "--name"))
	up := d.Down(t)
	for _, domain := range domains {
		must(t, syscall.Kill(GuestPID(t, domain), syscall.SIGKILL))
	}
	must(t, os.RemoveAll(d.path("run/qemu")))
	up()
}

// QemuImg runs qemu-img, which has to work.
func QemuImg(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
