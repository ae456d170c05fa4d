package pvefake

import (
	"fmt"
	"time"
)

func destroyVM(r *request) (any, error) {
	if err := r.noSkiplock(); err != nil {
		return nil, err
	}
	v, err := r.load()
	if err != nil {
		return nil, err
	}
	check := func(v *vm) error {
		switch {
		case v.config["protection"] == "1":
			return die("can't remove VM %d - protection mode enabled", v.id)
		case v.ha && !r.flag("purge"):
			return die("unable to remove VM %d - used in HA resources and purge parameter not set.", v.id)
		case v.running:
			return die("VM %d is running - destroy failed", v.id)
		}
		return nil
	}
	if err := check(v); err != nil {
		return nil, err
	}
	return r.forkVM("qmdestroy", func(t *task) error {
		if err := t.sleep(r.c.took("qmdestroy", 500*time.Millisecond)); err != nil {
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
		if err := v.checkLock(); err != nil && v.lock() != "suspended" {
			return err
		}
		if err := check(v); err != nil {
			return err
		}
		return r.c.destroy(t, v, r.flag("purge"), r.flag("destroy-unreferenced-disks"))
	})
}

// destroy removes the disks, then, when asked, whatever carries the VMID on
// every storage, and at last the config: a failure between leaves the VM there
// without its disks.
func (c *Cluster) destroy(t *task, v *vm, purge, unreferenced bool) error {
	var mine []string
	for _, k := range c.disks(v.config) {
		d, err := c.parseDrive(k, v.config[k])
		if err != nil {
			return err
		}
		mine = append(mine, d.file)
	}
	if s := v.config["vmstate"]; s != "" {
		mine = append(mine, s)
	}
	for _, volid := range mine {
		st, vol := c.lookup(v.node, volid)
		if vol != nil && vol.vmid == v.id && st.children(v.node, vol.name) {
			return die("base volume '%s' is still in use by linked cloned", volid)
		}
	}
	for _, volid := range mine {
		st, vol := c.lookup(v.node, volid)
		if vol == nil {
			if _, name, err := c.parse(volid); err == nil {
				t.logf("disk image '%s' does not exist", c.storageOf(volid).path(name))
			}
			continue
		}
		if _, err := c.usable(st.ID, v.node); err != nil {
			t.logf("Could not remove disk '%s', check manually: %s", volid, err)
			continue
		}
		if vol.vmid == v.id {
			delete(st.on(v.node), vol.name)
		}
	}
	if unreferenced {
		for _, st := range c.sortedStorages() {
			if st.Disabled || !st.here(v.node) {
				continue
			}
			if _, err := c.usable(st.ID, v.node); err != nil {
				return err
			}
			for name, vol := range st.on(v.node) {
				if vol.vmid == v.id {
					t.logf("destroying unreferenced disk '%s'", st.volid(vol))
					delete(st.on(v.node), name)
				}
			}
		}
	}
	if purge {
		t.logf("purging VM %d from related configurations..", v.id)
	}
	delete(c.vms, v.id)
	for _, p := range c.pools {
		delete(p, fmt.Sprintf("/vms/%d", v.id))
	}
	c.notify()
	return nil
}

func (c *Cluster) storageOf(volid string) *storage {
	st, _, _ := c.parse(volid)
	return st
}

// RemoveVM makes a VM vanish with its disks, as somebody else's destroy does.
func (c *Cluster) RemoveVM(vmid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vms[vmid]; v != nil {
		c.dropVolumes(v)
		delete(c.vms, vmid)
		c.notify()
	}
}

// dropVolumes removes every volume that a VM owns on usable storages.
func (c *Cluster) dropVolumes(v *vm) {
	for _, st := range c.storages {
		for name, vol := range st.on(v.node) {
			if vol.vmid == v.id {
				delete(st.on(v.node), name)
			}
		}
	}
}
