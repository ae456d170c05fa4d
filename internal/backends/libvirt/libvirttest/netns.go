package libvirttest

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Netns is the network namespace of a daemon, where its networks and its guests are.
type Netns struct{ path string }

// Netns finds the daemon's network namespace; libvirtd has to run.
func (d Daemon) Netns(t testing.TB) Netns {
	t.Helper()
	return Netns{fmt.Sprintf("/proc/%d/ns/net", d.pid(t))}
}

// Do runs f in the namespace, on a thread that is not used again, and waits for it. Sockets
// that f opens stay in the namespace and may be used anywhere; f must not end the test.
func (n Netns) Do(t testing.TB, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		h, err := os.Open(n.path)
		if err == nil {
			err = unix.Setns(int(h.Fd()), unix.CLONE_NEWNET)
			_ = h.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
