package proxmox

import (
	"context"
	"time"

	"proxyfleet/internal/backends"
)

// unlocked waits until a VM of ours has no lock, and returns it as it is then. The error
// after LockTimeout names the lock.
func (b *Backend) unlocked(ctx context.Context, f found) (found, error) {
	return b.unlockedBut(ctx, f, "")
}

// unlockedBut takes a VM with the lock but as well.
func (b *Backend) unlockedBut(ctx context.Context, f found, but string) (found, error) {
	deadline := time.Now().Add(b.conf.LockTimeout)
	for {
		var err error
		if f, err = b.verify(ctx, f); err != nil {
			return f, err
		}
		lock := f.conf["lock"]
		if lock == "" || lock == but {
			return f, nil
		}
		if !time.Now().Before(deadline) {
			return f, backends.Errorf(backends.ErrTransient, "wait for lock",
				"%s still has the lock %q after %s; if nothing that explains it runs (backup, snapshot, migration), run `qm unlock %d` on node %s",
				f, lock, b.conf.LockTimeout, f.vm.ID, f.vm.Node)
		}
		if err := sleep(ctx, min(b.poll, b.conf.LockTimeout)); err != nil {
			return f, classify("wait for lock", err, "%s has the lock %q", f, lock)
		}
	}
}

// sleep ends early with ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
