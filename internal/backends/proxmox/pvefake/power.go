package pvefake

import (
	"fmt"
	"strings"
	"time"
)

// boot makes a VM run. Pending changes are applied, as they are at a start.
func (c *Cluster) boot(v *vm) {
	v.applyPending()
	v.running, v.paused, v.since = true, false, c.clock.now()
	c.seq++
	v.pid = 2000 + c.seq
	c.notify()
}

// halt ends a VM's process; what was pending is applied.
func (c *Cluster) halt(v *vm) {
	v.running, v.paused, v.pid = false, false, 0
	v.applyPending()
	c.notify()
}

// checkStart is what makes a start fail once the lock is passed.
func (c *Cluster) checkStart(t *task, v *vm) error {
	for _, k := range sortedDrives(v.config) {
		d, err := c.parseDrive(k, v.config[k])
		if err != nil || d.empty() {
			continue
		}
		if st, vol := c.lookup(v.node, d.file); vol == nil {
			return die("volume '%s' does not exist", d.file)
		} else if _, err := c.usable(st.ID, v.node); err != nil {
			return err
		}
	}
	for k, val := range v.config {
		if !netRE.MatchString(k) {
			continue
		}
		nic, _ := c.parseNIC(k, val)
		if b := nic["bridge"]; b != "" && !c.nodes[v.node].bridges[b] {
			return die("bridge '%s' does not exist", b)
		}
	}
	if n := c.nodes[v.node]; v.memory() > n.memory {
		t.logf("kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory")
		return die("start failed: QEMU exited with code 1")
	}
	c.warnNICs(t, v)
	return nil
}

// warnNICs warns of every NIC without a bridge; the task is then a success
// with warnings.
func (c *Cluster) warnNICs(t *task, v *vm) {
	for k, val := range v.config {
		if nic, err := parsePropertyString(val, c.configProps()["net0"].Sub); netRE.MatchString(k) && err == "" && nic["bridge"] == "" {
			t.warnf("Interface 'tap%di%s' not attached to any bridge.", v.id, strings.TrimPrefix(k, "net"))
		}
	}
}

func (r *request) forkVM(typ string, run func(*task) error) (any, error) {
	return r.c.fork(r.who, r.node.name, typ, fmt.Sprint(r.vmid), run)
}

// skiplock is refused to everybody but root himself.
func (r *request) noSkiplock() error {
	if r.flag("skiplock") && r.who.String() != "root@pam" {
		return paramErr("skiplock", "Only root may use this option.")
	}
	return nil
}

func startVM(r *request) (any, error) {
	if err := r.noSkiplock(); err != nil {
		return nil, err
	}
	if v, err := r.load(); err == nil && v.ha {
		return r.viaHA("hastart", "start", func(v *vm) { r.c.boot(v) })
	}
	return r.forkVM("qmstart", func(t *task) error { return r.c.start(t, r.node.name, r.vmid) })
}

func (c *Cluster) start(t *task, node string, vmid int) error {
	if err := t.sleep(c.took("qmstart", 500*time.Millisecond)); err != nil {
		return err
	}
	unlock, err := t.flock(vmid)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := c.load(node, vmid)
	if err != nil {
		return err
	}
	if v.template() {
		return die("you can't start a vm if it's a template")
	}
	// A hibernated VM is resumed by a start; under a backup the start of a
	// running one is taken for the backup's own.
	suspended := v.lock() == "suspended"
	if v.lock() == "backup" && v.running {
		return nil
	}
	if err := v.checkLock(); err != nil && !suspended {
		return err
	}
	if v.running {
		return die("VM %d already running", vmid)
	}
	if suspended {
		t.logf("Resuming suspended VM")
		if s := v.config["vmstate"]; s != "" {
			if _, vol := c.lookup(node, s); vol == nil {
				return die("volume '%s' does not exist", s)
			}
		}
	}
	if err := c.checkStart(t, v); err != nil {
		return err
	}
	if suspended {
		if s := v.config["vmstate"]; s != "" {
			_ = c.dropOwned(v, s)
		}
		for _, k := range []string{"lock", "vmstate", "runningmachine", "runningcpu"} {
			delete(v.config, k)
		}
		t.logf("Resumed VM, removing state")
	}
	c.boot(v)
	return nil
}

// viaHA only asks the HA manager: the task ends at once, the VM follows later.
func (r *request) viaHA(typ, what string, do func(*vm)) (any, error) {
	c, id := r.c, r.vmid
	return r.forkVM(typ, func(t *task) error {
		if err := t.sleep(200 * time.Millisecond); err != nil {
			return err
		}
		t.logf("Requesting HA %s for VM %d", what, id)
		c.work.Add(1)
		go func() {
			defer c.work.Done()
			if c.clock.sleep(c.ctx, 10*time.Second) != nil {
				return
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if v := c.vms[id]; v != nil {
				do(v)
			}
		}()
		return nil
	})
}

// SetRunning starts or stops a VM behind the client's back.
func (c *Cluster) SetRunning(vmid int, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.known(vmid); running {
		c.boot(v)
	} else {
		c.halt(v)
	}
}

// SetPaused pauses or resumes a running VM, as an I/O error does.
func (c *Cluster) SetPaused(vmid int, paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known(vmid).paused = paused
	c.notify()
}
