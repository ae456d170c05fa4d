package local

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Limits are what one proxy's process may use. Zero fields take the defaults.
type Limits struct {
	// Connections from clients at once; more wait until one ends. Each takes two open
	// files. Default 2,048.
	Connections int `yaml:"connections" json:"connections,omitempty"`
	// MemoryMiB is where the process frees what it can; at a quarter more it ends, and the
	// agent starts it again. Default 512.
	MemoryMiB int `yaml:"memoryMiB" json:"memoryMiB,omitempty"`
	// CPUs that it uses at once. Default 0: all.
	CPUs int `yaml:"cpus" json:"cpus,omitempty"`
}

func (l Limits) withDefaults() (Limits, error) {
	l.Connections, l.MemoryMiB = cmp.Or(l.Connections, 2048), cmp.Or(l.MemoryMiB, 512)
	switch {
	case l.Connections < 1 || l.Connections > 1<<19:
		return l, fmt.Errorf("backend.limits.connections: %d is not between 1 and %d", l.Connections, 1<<19)
	case l.MemoryMiB < 32:
		return l, fmt.Errorf("backend.limits.memoryMiB: %d is less than the 32 that a process needs", l.MemoryMiB)
	case l.CPUs < 0:
		return l, fmt.Errorf("backend.limits.cpus: %d is negative", l.CPUs)
	}
	return l, nil
}

// spareFiles are for the log, the lock, name resolution and what the runtime opens.
const spareFiles = 64

// apply limits this process. Only soft limits are set, so that a later configuration may
// raise them again. A machine whose hard limit is lower keeps that.
func (l Limits) apply() error {
	if l.CPUs > 0 {
		runtime.GOMAXPROCS(l.CPUs)
	} else {
		runtime.SetDefaultGOMAXPROCS()
	}
	if l.MemoryMiB > 0 {
		debug.SetMemoryLimit(int64(l.MemoryMiB) << 20)
	}
	if l.Connections == 0 {
		return nil
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	want := uint64(2*l.Connections + spareFiles)
	files.Cur = min(want, files.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	if files.Cur < want {
		return fmt.Errorf("%d connections need %d open files; this process may have %d (LimitNOFILE= of the agent's unit)", l.Connections, want, files.Cur)
	}
	return nil
}

// exceeded reports the resident memory in MiB, and whether it is a quarter over the limit.
func (l Limits) exceeded() (usedMiB int, over bool) {
	statm, err := os.ReadFile("/proc/self/statm") // pages: size, resident, … (proc(5))
	if err != nil || l.MemoryMiB == 0 {
		return 0, false
	}
	var size, resident int
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		return 0, false
	}
	usedMiB = resident * os.Getpagesize() >> 20
	return usedMiB, usedMiB > l.MemoryMiB+l.MemoryMiB/4
}
