package kubetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// program is a process that ends with its test, and with the test's process.
type program struct {
	cmd   *exec.Cmd
	stop  chan struct{}
	ended chan struct{}
	once  sync.Once
}

// tool is the path of a program that e2e/tools.sh has built.
func tool(t testing.TB, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set: run the tests through make, which builds what they need, or set it to what e2e/tools.sh prints", variable)
	}
	return path
}

// run starts a program whose output goes to a file, which is shown when t fails.
func run(t testing.TB, log, path string, args ...string) *program {
	t.Helper()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	p := &program{cmd: exec.Command(path, args...), stop: make(chan struct{}), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	// The program dies with the thread that started it, so that thread is kept.
	go func() {
		runtime.LockOSThread()
		defer close(p.ended)
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		<-p.stop
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}()
	must(t, <-started)
	t.Cleanup(func() {
		p.kill()
		_ = out.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("the end of %s:\n%s", filepath.Base(log), text[max(0, len(text)-3000):])
		}
	})
	return p
}

// kill ends the program with SIGKILL and waits for it.
func (p *program) kill() {
	p.once.Do(func() { close(p.stop) })
	<-p.ended
}
