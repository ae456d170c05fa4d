package pvefake

import (
	"slices"
	"time"
)

// migrateVM moves a VM to another node. What a VM has on local storage stops
// it, unless with-local-disks is given, which moves disks but never an ISO.
// The texts of the failures are qemu-server's; no recording covers them.
func migrateVM(r *request) (any, error) {
	c, target := r.c, r.params["target"]
	if target == r.node.name {
		return nil, paramErr("target", "target is local node.")
	}
	if c.nodes[target] == nil {
		return nil, die("no such cluster node '%s'", target)
	}
	v, err := r.load()
	if err != nil {
		return nil, err
	}
	if err := v.checkLock(); err != nil {
		return nil, err
	}
	if v.running && !r.flag("online") {
		return nil, die("can't migrate running VM without --online")
	}
	return r.forkVM("qmigrate", func(t *task) error {
		unlock, err := t.flock(r.vmid)
		if err != nil {
			return err
		}
		defer unlock()
		local := c.localVolumes(v)
		for _, volid := range local {
			_, vol := c.lookup(v.node, volid)
			if vol != nil && vol.content == "images" && r.flag("with-local-disks") {
				continue
			}
			t.logf("can't migrate local volume '%s'", volid)
			return die("migration aborted")
		}
		v.config["lock"] = "migrate"
		err = t.sleep(c.took("qmigrate", 2*time.Second))
		if t.died() {
			return err
		}
		delete(v.config, "lock")
		if err != nil {
			return die("migration aborted")
		}
		if c.nodes[target].down {
			return die("migration aborted")
		}
		c.move(v, target)
		return nil
	})
}

// localVolumes are the volumes that a VM uses on storages that are not shared.
func (c *Cluster) localVolumes(v *vm) []string {
	var out []string
	for _, k := range sortedDrives(v.config) {
		d, err := c.parseDrive(k, v.config[k])
		if err != nil || d.empty() {
			continue
		}
		if st := c.storageOf(d.file); st != nil && !st.Shared {
			out = append(out, d.file)
		}
	}
	return slices.Compact(out)
}

// move puts a VM on another node; its local disks go with it, ISOs stay.
func (c *Cluster) move(v *vm, target string) {
	for _, volid := range c.localVolumes(v) {
		if st, vol := c.lookup(v.node, volid); vol != nil && vol.vmid == v.id {
			delete(st.on(v.node), vol.name)
			st.put(target, vol)
		}
	}
	v.node = target
	v.stat = c.observe(v)
	c.notify()
}

// MoveVM migrates a VM to another node in no time, behind the client's back.
func (c *Cluster) MoveVM(vmid int, node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.move(c.known(vmid), node)
}
