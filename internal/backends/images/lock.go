package images

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Lock opens a file, making it where it is missing, and waits until no other process has it
// locked. Closing it unlocks it. The error of a context that ended is that context's.
func Lock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := TryLock(path)
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// TryLock is Lock that does not wait: the file is nil while somebody else has it locked.
func TryLock(path string) (*os.File, error) { return tryLock(path, os.O_CREATE) }

// tryLock is TryLock with flags for opening the file.
func tryLock(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|flags, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil && samePlace(f, path) {
		return f, nil
	}
	_ = f.Close()
	if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, os.NewSyscallError("flock", err)
	}
	return nil, nil
}

// Locked reports whether somebody has a file locked. One that cannot be looked at counts as
// locked, one that is not there does not.
func Locked(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// Unlock removes a file that [Lock] gave, and unlocks it: whoever waits for it makes it anew.
func Unlock(f *os.File) {
	_ = os.Remove(f.Name())
	_ = f.Close()
}

// samePlace reports whether f is still what path names: whoever held the lock before us
// renamed it into a base or removed it.
func samePlace(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}
