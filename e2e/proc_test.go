package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaries builds the programs once for a run of the tests, as `make build` does; agents have
// the tag faults, which lets a test crash them at a labelled step.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "proxyfleet-e2e-")
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"-tags", "faults", "-o", dir + "/agent", "proxyfleet/cmd/agent"},
		{"-tags", "faults,no_gcp,no_kubernetes", "-o", dir + "/agent-host", "proxyfleet/cmd/agent"},
		{"-tags", "no_gcp,no_kubernetes", "-o", dir + "/coordinator", "proxyfleet/cmd/coordinator"},
	} {
		cmd := exec.Command("go", append([]string{"build"}, args...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	return dir, nil
})

// program returns the path of a built program.
func program(t testing.TB, name string) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// tool returns the path of a program that the Makefile provides.
func tool(t testing.TB, env string) string {
	t.Helper()
	path := os.Getenv(env)
	if path == "" {
		t.Fatalf("%s is not set: run the tests through make, which builds what they need", env)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: %v", env, err)
	}
	return path
}

// proc is a child process whose output is kept and shown when its test fails.
type proc struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it ended
	err  error         // of Wait, once done is closed
	mu   sync.Mutex    // guards out
	out  bytes.Buffer
}

func (p *proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *proc) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// start runs a program until the test ends or stop or kill is called. env is added to the
// test's own environment.
func start(t testing.TB, env []string, path string, args ...string) *proc {
	t.Helper()
	p := &proc{t: t, name: filepath.Base(path), cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("---- output of %s %s\n%s", p.name, strings.Join(args, " "), p.output())
		}
	})
	return p
}

// kill ends the process with SIGKILL and waits for it.
func (p *proc) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop ends it as an operator does, and fails the test when that takes over 10 s or the
// process does not exit cleanly.
func (p *proc) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Errorf("%s did not stop cleanly: %v", p.name, p.err)
		}
	case <-time.After(10 * time.Second):
		p.t.Errorf("%s did not stop within 10 s", p.name)
		p.kill()
	}
}

// waitKilled waits until the process has killed itself at a labelled step.
func (p *proc) waitKilled(within time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(within):
		p.t.Fatalf("%s was not killed at its step within %s", p.name, within)
	}
	var exit *exec.ExitError
	if !errors.As(p.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		p.t.Fatalf("%s ended with %v, want SIGKILL", p.name, p.err)
	}
}

// run runs a program to its end and returns what it printed on standard output.
func run(t testing.TB, path string, args ...string) (string, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s%s", filepath.Base(path), strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String(), err
}

// mustRun is run for what has to work.
func mustRun(t testing.TB, path string, args ...string) string {
	t.Helper()
	out, err := run(t, path, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually fails the test when check keeps failing for the given time.
func eventually(t testing.TB, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", within, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
