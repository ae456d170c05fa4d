package libvirttest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Inside runs a program in the daemon's network namespace, which has to work.
func (d Daemon) Inside(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--net", "--target", fmt.Sprint(d.pid(t))}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Within calls f in the daemon's network namespace, which an agent beside it would share.
func (d Daemon) Within(f func()) error {
	pid, err := findPID("libvirtd --config " + d.Dir)
	if err != nil {
		return err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err == nil {
			defer func() { _ = ns.Close() }()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}
