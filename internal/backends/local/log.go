package local

import (
	"os"

	"golang.org/x/sys/unix"
)

// maxLog is the size in bytes past which a child's log begins anew. What it was is kept
// once, so a proxy's logs take two of these and what is written in a second.
const maxLog = 1 << 20

// openLog opens a log to append to.
func (p paths) openLog() (*os.File, error) {
	if err := p.rotate(); err != nil {
		return nil, err
	}
	return os.OpenFile(p.file(extLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// rotate puts a log that is too large aside, in the place of the one before it.
func (p paths) rotate() error {
	st, err := os.Stat(p.file(extLog))
	if err != nil || st.Size() <= maxLog {
		return nil // none yet, or it can stay
	}
	return os.Rename(p.file(extLog), p.file(extOld))
}

// tend begins the log anew when it is too large. It is standard output and error, so that
// what the Go runtime says of a crash is in it as well.
func (c *child) tend() {
	var before, after unix.Stat_t
	log, err := c.p.openLog()
	if err != nil {
		c.log.Error("the log cannot begin anew", "error", err)
		return
	}
	defer log.Close()
	if unix.Fstat(unix.Stderr, &before) == nil && unix.Fstat(int(log.Fd()), &after) == nil && before.Ino == after.Ino && before.Dev == after.Dev {
		return
	}
	for _, fd := range []int{unix.Stdout, unix.Stderr} {
		if err := unix.Dup3(int(log.Fd()), fd, 0); err != nil {
			c.log.Error("the log cannot begin anew", "error", err)
		}
	}
}
