package pvefake

import "time"

// shutdownWait is how long qemu-server waits for a guest to stop by default.
const shutdownWait = 60 * time.Second

func stopVM(r *request) (any, error) {
	if err := r.noSkiplock(); err != nil {
		return nil, err
	}
	if v, err := r.load(); err == nil && v.ha {
		return r.viaHA("hastop", "stop", func(v *vm) { r.c.halt(v) })
	}
	return r.forkVM("qmstop", func(t *task) error {
		return r.c.end(t, r.node.name, r.vmid, func(v *vm) error {
			r.c.halt(v)
			return nil
		})
	})
}

// end is the common part of stop and shutdown: a stopped VM is done whatever
// its lock.
func (c *Cluster) end(t *task, node string, vmid int, how func(*vm) error) error {
	if err := t.sleep(c.took(t.typ, 300*time.Millisecond)); err != nil {
		return err
	}
	unlock, err := t.flock(vmid)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := c.load(node, vmid)
	if err != nil {
		return die("unable to find configuration file for VM %d on node '%s'", vmid, node)
	}
	if !v.running {
		return nil
	}
	if err := v.checkLock(); err != nil {
		return err
	}
	return how(v)
}

func shutdownVM(r *request) (any, error) {
	if err := r.noSkiplock(); err != nil {
		return nil, err
	}
	if v, err := r.load(); err == nil && v.ha {
		return r.viaHA("hashutdown", "stop", func(v *vm) { r.c.halt(v) })
	}
	wait := time.Duration(r.int("timeout", int(shutdownWait/time.Second))) * time.Second
	return r.forkVM("qmshutdown", func(t *task) error {
		return r.c.end(t, r.node.name, r.vmid, func(v *vm) error {
			return r.c.powerdown(t, v, wait, r.flag("forceStop"))
		})
	})
}

// powerdown asks the guest to stop and waits for it.
func (c *Cluster) powerdown(t *task, v *vm, wait time.Duration, force bool) error {
	if c.agentEnabled(v.config) && (v.guest.NoAgent || v.paused) {
		if err := t.sleep(agentDelay); err != nil {
			return err
		}
		t.logf("QEMU Guest Agent is not running - VM %d qga command 'guest-ping' failed - got timeout", v.id)
	}
	takes := v.guest.ShutdownTakes
	if v.guest.IgnoresShutdown || v.paused || takes > wait {
		if err := t.sleep(wait); err != nil {
			return err
		}
		if !force {
			return die("VM quit/powerdown failed - got timeout")
		}
		t.logf("VM still running - terminating now with SIGTERM")
	} else if err := t.sleep(takes); err != nil {
		return err
	}
	c.halt(v)
	return nil
}
