package pvefake

import (
	"context"
	"time"
)

// lockWait is how long qemu-server waits for a VM's lock file.
const lockWait = 10 * time.Second

// lockFile is /var/lock/qemu-server/lock-N.conf. Every change of a VM holds it
// alone; cloning shares the template's.
type lockFile struct {
	shared int
	alone  bool
}

func (l *lockFile) free(shared bool) bool { return !l.alone && (shared || l.shared == 0) }

// flock takes a VM's lock file, waiting up to lockWait. The caller holds the
// mutex, also when it calls the function returned.
func (c *Cluster) flock(ctx context.Context, vmid int, shared bool, waiting func()) (unlock func(), err error) {
	l := c.locks[vmid]
	if l == nil {
		l = &lockFile{}
		c.locks[vmid] = l
	}
	if !l.free(shared) {
		waiting()
		if !c.await(ctx, lockWait, func() bool { return l.free(shared) }) {
			return nil, lockTimeout(vmid)
		}
	}
	if shared {
		l.shared++
	} else {
		l.alone = true
	}
	return func() {
		if shared {
			l.shared--
		} else {
			l.alone = false
		}
		c.notify()
	}, nil
}

// flock takes the lock file in a task, which logs that it had to wait.
func (t *task) flock(vmid int) (func(), error) {
	waited := false
	unlock, err := t.c.flock(t.ctx, vmid, false, func() {
		waited = true
		t.logf("trying to acquire lock...")
	})
	if t.ctx.Err() != nil {
		if err == nil {
			unlock()
		}
		return nil, errStopped
	}
	if waited && err == nil {
		t.logf(" OK")
	}
	return unlock, err
}

// HoldLockFile takes a VM's lock file until the function returned is called,
// as a hung process on the node does.
func (c *Cluster) HoldLockFile(vmid int) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unlock, err := c.flock(c.ctx, vmid, false, func() {})
	if err != nil {
		c.t.Errorf("pvefake: lock file of VM %d is taken", vmid)
		return func() {}
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		unlock()
	}
}

// SetLock writes a lock (clone, backup, snapshot, suspended, …) into a VM's
// config, where it stays; "" removes it, as qm unlock does.
func (c *Cluster) SetLock(vmid int, lock string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.known(vmid)
	v.config["lock"] = lock
	if lock == "" {
		delete(v.config, "lock")
	}
}
