package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// takeLock locks the file for the life of this process, which must not open it again:
// closing any descriptor of it would give the lock up. ok is false when another has it.
func takeLock(f *os.File) (ok bool, err error) {
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// holder asks the kernel who holds the lock; 0: nobody.
func holder(f *os.File) (pid int, err error) {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, err
	}
	if l.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(l.Pid), nil
}

// holderOf is holder for a path; nobody holds what is not there.
func holderOf(path string) (pid int, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return holder(f)
}

// errStranger says that a process holds our lock and does not look like ours.
var errStranger = errors.New("the process that holds the lock is not ours")

// openHolder returns a pidfd of the process that holds the lock, nil for nobody.
func (p paths) openHolder(f *os.File, uid string) (*os.File, int, error) {
	for {
		pid, err := holder(f)
		if err != nil || pid == 0 {
			return nil, 0, err
		}
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if errors.Is(err, unix.ESRCH) {
			continue // it ended just now
		}
		if err != nil {
			return nil, 0, fmt.Errorf("open process %d: %w", pid, err)
		}
		pidfd := os.NewFile(uintptr(fd), "pidfd")
		if again, err := holder(f); err != nil || again != pid {
			pidfd.Close()
			continue // the number may be another's by now
		}
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if p.isChildLine(line, uid) {
			return pidfd, pid, nil
		}
		pidfd.Close()
		if err != nil || len(line) == 0 { // it is ending: its memory goes before its locks
			time.Sleep(time.Millisecond)
			continue
		}
		if again, err := holder(f); err == nil && again == pid {
			return nil, pid, fmt.Errorf("%w: pid %d", errStranger, pid)
		}
	}
}

// send signals the process of a pidfd; one that has ended is fine.
func send(pidfd *os.File, sig unix.Signal) error {
	err := unix.PidfdSendSignal(int(pidfd.Fd()), sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// grace is how long a child may take to end its requests before it is killed.
const grace = 3 * time.Second

// stopHolder ends whatever holds the lock, until nobody does.
func (p paths) stopHolder(ctx context.Context, f *os.File, uid string) error {
	killAt := time.Now().Add(grace)
	terminated := 0
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		pidfd, pid, err := p.openHolder(f, uid)
		if err != nil {
			return err
		}
		if pidfd == nil {
			return nil
		}
		sig := unix.SIGTERM
		if time.Now().After(killAt) {
			sig = unix.SIGKILL
		}
		if pid != terminated || sig == unix.SIGKILL {
			err = send(pidfd, sig)
			terminated = pid
		}
		pidfd.Close()
		if err != nil {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// pause waits a little, less when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
