package pvefake

import (
	"slices"
	"time"
)

// runningVM is the VM of the calls that answer at once when it does not run.
func (r *request) runningVM() (*vm, error) {
	if err := r.noSkiplock(); err != nil {
		return nil, err
	}
	v, err := r.load()
	if err == nil && !v.running {
		err = die("VM %d not running", v.id)
	}
	return v, err
}

func (r *request) onRunning(typ string, allowed []string, do func(*task, *vm) error) (any, error) {
	if _, err := r.runningVM(); err != nil {
		return nil, err
	}
	return r.forkVM(typ, func(t *task) error {
		if err := t.sleep(200 * time.Millisecond); err != nil {
			return err
		}
		unlock, err := t.flock(r.vmid)
		if err != nil {
			return err
		}
		defer unlock()
		v, err := r.load()
		if err != nil {
			return err
		}
		if err := v.checkLock(); err != nil && !slices.Contains(allowed, v.lock()) {
			return err
		}
		return do(t, v)
	})
}

func resetVM(r *request) (any, error) {
	return r.onRunning("qmreset", nil, func(_ *task, v *vm) error {
		v.since = r.c.clock.now()
		return nil
	})
}

func rebootVM(r *request) (any, error) {
	wait := time.Duration(r.int("timeout", int(shutdownWait/time.Second))) * time.Second
	return r.onRunning("qmreboot", nil, func(t *task, v *vm) error {
		if err := r.c.powerdown(t, v, wait, false); err != nil {
			return err
		}
		r.c.boot(v)
		return nil
	})
}

func suspendVM(r *request) (any, error) {
	if r.flag("todisk") {
		return r.onRunning("qmsuspend", nil, func(t *task, v *vm) error {
			v.config["lock"] = "suspended"
			r.c.halt(v)
			return nil
		})
	}
	return r.onRunning("qmpause", []string{"backup"}, func(_ *task, v *vm) error {
		v.paused = true
		return nil
	})
}

func resumeVM(r *request) (any, error) {
	if v, err := r.load(); err == nil && v.lock() == "suspended" && !v.running {
		return r.forkVM("qmresume", func(t *task) error { return r.c.start(t, r.node.name, r.vmid) })
	}
	return r.onRunning("qmresume", []string{"backup"}, func(t *task, v *vm) error {
		v.paused = false
		r.c.warnNICs(t, v)
		return nil
	})
}
