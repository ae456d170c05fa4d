package local

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// strays are children of a uid by their command line, whether they have the lock or not: one
// that was started a moment ago, by an agent that was killed or a call that was
// cancelled, has not taken it yet.
func (p paths) strays(uid string) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && p.isChild(pid, uid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func (p paths) isChild(pid int, uid string) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && p.isChildLine(line, uid)
}

// isChildLine compares the end of a command line with what spawn gives.
func (p paths) isChildLine(line []byte, uid string) bool {
	return strings.HasSuffix(string(line), "\x00"+p.dir+"\x00"+uid+"\x00")
}

// killStrays ends them, until there are none. Call it when the lock file is gone: those that
// come later end by themselves before they listen.
func (p paths) killStrays(ctx context.Context, uid string) error {
	for {
		pids, err := p.strays(uid)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // it has ended
			}
			pidfd := os.NewFile(uintptr(fd), "pidfd")
			if p.isChild(pid, uid) { // still, so the pidfd is of the one that was found
				err = send(pidfd, unix.SIGKILL)
			}
			pidfd.Close()
			if err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		pause(ctx, 2*time.Millisecond)
	}
}
