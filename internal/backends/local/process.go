package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
)

// wrapDisk classes an error of writing files.
func wrapDisk(op string, err error, path string) error {
	switch {
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return backends.Wrap(backends.ErrNoCapacity, op, err, "no space left for %s", path)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS):
		return backends.Wrap(backends.ErrHostFault, op, err, "may not write %s", path)
	}
	return backends.Wrap(backends.ErrTransient, op, err, "cannot write %s", path)
}

// start brings a child to the configuration with digest: one that runs reads it again, else
// one is started.
func (b *Backend) start(ctx context.Context, p paths, ref backends.Ref, digest string) error {
	const op = "start process"
	f, err := os.Open(p.file(extLock))
	if err != nil {
		return backends.Wrap(backends.ErrTransient, op, err, "the lock of proxy %s", ref.Proxy)
	}
	defer f.Close()
	pidfd, pid, err := p.openHolder(f, ref.UID)
	if err != nil {
		return wrapHolder(op, ref, err)
	}
	var ended <-chan struct{}
	if pidfd != nil {
		defer pidfd.Close()
		var r run
		if _, err := get(p.file(extRun), &r); err == nil && r.PID == pid && r.Applied == digest {
			b.keep(p, ref.UID)
			return nil
		}
		if err := backends.Step(ctx, "process.reload"); err != nil {
			return err
		}
		if err := send(pidfd, unix.SIGHUP); err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "cannot signal process %d of proxy %s", pid, ref.Proxy)
		}
	} else {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := remove(p.file(extRun)); err != nil { // an earlier child's
			return wrapDisk(op, err, p.file(extRun))
		}
		if err := backends.Step(ctx, "process.start"); err != nil {
			return err
		}
		if ended, err = b.spawn(p, ref); err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "proxy %s", ref.Proxy)
		}
	}
	if err := await(ctx, p, f, ref, digest, ended); err != nil {
		return err
	}
	b.keep(p, ref.UID)
	return nil
}

func wrapHolder(op string, ref backends.Ref, err error) error {
	class := backends.ErrTransient
	if errors.Is(err, errStranger) {
		class = backends.ErrConflict
	}
	return backends.Wrap(class, op, err, "process of proxy %s", ref.Proxy)
}

// spawn starts a child that outlives us: a session of its own, no descriptor but its log, no
// environment of ours, which may have secrets.
func (b *Backend) spawn(p paths, ref backends.Ref) (ended <-chan struct{}, err error) {
	log, err := p.openLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	args := append(append([]string{}, b.exec[1:]...), p.dir, ref.UID)
	cmd := exec.Command(b.exec[0], args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return b.keeper.reap(cmd), nil
}

// await returns when the holder of the lock says that it has applied digest, or that it
// cannot, or when the child ended and nobody holds the lock.
func await(ctx context.Context, p paths, f *os.File, ref backends.Ref, digest string, ended <-chan struct{}) error {
	const op = "start process"
	wait := time.Millisecond
	for {
		over := false
		select {
		case <-ended:
			over = true // asked before the lock: nobody can take it any more
		default:
		}
		pid, err := holder(f)
		if err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "the lock of proxy %s", ref.Proxy)
		}
		var r run
		if _, err := get(p.file(extRun), &r); err != nil {
			r = run{}
		}
		switch {
		case r.Error != "" && r.Tried == digest:
			class := backends.ClassNamed(r.Class)
			if class == nil {
				class = backends.ErrTransient
			}
			return backends.Errorf(class, op, "proxy %s: %s", ref.Proxy, r.Error)
		case pid != 0 && r.PID == pid && r.Applied == digest:
			return nil
		case pid == 0 && (over || ended == nil):
			return backends.Errorf(backends.ErrTransient, op, "the process of proxy %s ended at once; its log is %s", ref.Proxy, p.file(extLog))
		}
		if err := ctx.Err(); err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "proxy %s was still starting", ref.Proxy)
		}
		pause(ctx, wait)
		wait = min(2*wait, 50*time.Millisecond)
	}
}

// stop ends the child of a uid, if there is one.
func (b *Backend) stop(ctx context.Context, p paths, ref backends.Ref) error {
	const op = "stop process"
	f, err := os.Open(p.file(extLock))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return backends.Wrap(backends.ErrTransient, op, err, "the lock of proxy %s", ref.Proxy)
	}
	defer f.Close()
	pid, err := holder(f)
	if err != nil {
		return backends.Wrap(backends.ErrTransient, op, err, "the lock of proxy %s", ref.Proxy)
	}
	if pid == 0 {
		return nil
	}
	if err := backends.Step(ctx, "process.stop"); err != nil {
		return err
	}
	if err := p.stopHolder(ctx, f, ref.UID); err != nil {
		return wrapHolder(op, ref, fmt.Errorf("still running: %w", err))
	}
	return nil
}
