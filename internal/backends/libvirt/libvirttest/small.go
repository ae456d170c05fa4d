package libvirttest

import (
	"os"
	"syscall"
	"testing"
)

// StartSmall is Start with the pool on a file system of its own, in memory, of a size such as
// "8m".
func StartSmall(t testing.TB, size string) Daemon {
	t.Helper()
	return start(t, func(d Daemon) { // before the daemon has a mount namespace of its own
		must(t, os.Mkdir(d.PoolDir(), 0o711))
		must(t, syscall.Mount("tmpfs", d.PoolDir(), "tmpfs", 0, "mode=711,size="+size))
		t.Cleanup(func() { _ = syscall.Unmount(d.PoolDir(), syscall.MNT_DETACH) })
	})
}
