package local

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
)

// keeper watches child processes, our own and adopted ones, without a thread for each: a
// pidfd is readable once its process has ended.
type keeper struct {
	ended func(uid string) // called when a process has ended

	mu      sync.Mutex          // guards what follows
	watched map[string]*os.File // uid → pidfd
	closed  bool
	wg      sync.WaitGroup
}

// watch begins to watch the process that holds f, unless that is done already.
func (k *keeper) watch(p paths, uid string, f *os.File) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.watched[uid] != nil {
		return nil
	}
	pidfd, _, err := p.openHolder(f, uid)
	if err != nil || pidfd == nil {
		return err
	}
	if k.watched == nil {
		k.watched = map[string]*os.File{}
	}
	k.watched[uid] = pidfd
	k.wg.Go(func() {
		gone := awaitEnd(pidfd)
		k.mu.Lock()
		delete(k.watched, uid)
		k.mu.Unlock()
		pidfd.Close()
		if gone {
			k.ended(uid)
		}
	})
	return nil
}

// reap waits for a process that we started, so that it does not stay a zombie; the channel
// is closed when it has ended. It gives up when the keeper is closed.
func (k *keeper) reap(cmd *exec.Cmd) <-chan struct{} {
	ended := make(chan struct{})
	fd, err := unix.PidfdOpen(cmd.Process.Pid, unix.PIDFD_NONBLOCK)
	if err != nil { // out of descriptors: wait the costly way
		go func() { _ = cmd.Wait(); close(ended) }()
		return ended
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	name := "child " + time.Now().String()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		pidfd.Close()
		return ended
	}
	if k.watched == nil {
		k.watched = map[string]*os.File{}
	}
	k.watched[name] = pidfd
	k.wg.Go(func() {
		if awaitEnd(pidfd) {
			_ = cmd.Wait()
			close(ended)
		}
		k.mu.Lock()
		delete(k.watched, name)
		k.mu.Unlock()
		pidfd.Close()
	})
	return ended
}

// awaitEnd returns true when the process of pidfd has ended, false when the wait was ended.
func awaitEnd(pidfd *os.File) bool {
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	_ = raw.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, _ := unix.Poll(fds, 0)
		gone = n > 0
		return gone
	})
	return gone
}

// close ends every wait; processes stay.
func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	for _, pidfd := range k.watched {
		_ = pidfd.SetReadDeadline(time.Unix(1, 0))
	}
	k.mu.Unlock()
	k.wg.Wait()
}

// Watch implements [backends.Watcher]: a child that ends wakes the agent. Children that an
// earlier agent started are watched as well.
func (b *Backend) Watch(ctx context.Context) <-chan backends.Event {
	names, err := b.names()
	if err != nil {
		b.log.Warn("cannot watch the children of earlier agents; the listing still sees them", "error", err)
	}
	for _, name := range names {
		var s state
		p := paths{b.dir, name}
		if found, err := get(p.file(extState), &s); !found || err != nil || !s.Mark.Owned(b.owner) {
			continue
		}
		b.keep(p, s.Mark.UID)
	}
	return b.feed.Watch(ctx)
}

// keep watches the child of a uid, if there is one.
func (b *Backend) keep(p paths, uid string) {
	f, err := os.Open(p.file(extLock))
	if err != nil {
		return // no lock file, no child
	}
	defer f.Close()
	if err := b.keeper.watch(p, uid, f); err != nil {
		b.log.Warn("cannot watch a child; the listing still sees it", "uid", uid, "error", err)
	}
}
