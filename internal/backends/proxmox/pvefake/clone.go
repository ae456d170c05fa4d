package pvefake

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// cloneJob is a clone on its way: checked by the call, done by the task.
type cloneJob struct {
	src    *vm
	id     int
	node   string // where the clone will be
	full   bool
	target *storage // of a full clone; nil: where the disks are
	format string
	params map[string]string
}

func cloneVM(r *request) (any, error) {
	c := r.c
	j, err := r.cloneJob()
	if err != nil {
		return nil, err
	}
	if c.vms[j.id] != nil {
		return nil, die("unable to create VM %d: config file already exists", j.id)
	}
	if err := c.mayClone(r.who, j); err != nil {
		return nil, err
	}
	// From here on the ID is taken: the clone exists, nameless and locked. It
	// is made on the template's node and moves to the target at the end.
	dst := c.newVM(j.id, j.src.node)
	dst.config = map[string]string{"lock": "clone", "description": " qmclone temporary file"}
	dst.guest = j.src.guest
	if p := r.params["pool"]; p != "" {
		c.addToPool(p, j.id)
	}
	unlockSrc, err := c.flock(c.ctx, j.src.id, true, func() {})
	if err != nil {
		delete(c.vms, j.id)
		return nil, err
	}
	unlockDst, err := c.flock(c.ctx, j.id, false, func() {})
	if err != nil {
		unlockSrc()
		delete(c.vms, j.id)
		return nil, err
	}
	c.notify()
	return c.fork(r.who, j.src.node, "qmclone", fmt.Sprint(j.src.id), func(t *task) error {
		defer unlockSrc()
		defer unlockDst()
		err := c.runClone(t, j, dst)
		if err != nil && !t.died() {
			c.dropVolumes(dst)
			delete(c.vms, j.id)
			return die("clone failed: %s", err)
		}
		return err
	})
}

func (r *request) cloneJob() (*cloneJob, error) {
	c, p := r.c, r.params
	if pool := p["pool"]; pool != "" && c.pools[pool] == nil {
		return nil, forbidden("pool '" + pool + "' does not exist")
	}
	j := &cloneJob{id: r.int("newid", 0), node: r.node.name, params: maps.Clone(p), format: p["format"]}
	if t := p["target"]; t != "" && t != "localhost" {
		if c.nodes[t] == nil {
			return nil, die("no such cluster node '%s'", t)
		}
		j.node = t
	}
	if s := p["storage"]; s != "" {
		st := c.storages[s]
		if st == nil {
			return nil, die("storage '%s' does not exist", s)
		}
		if st.Disabled {
			return nil, die("storage '%s' is disabled", s)
		}
		if !st.here(j.node) {
			return nil, die("storage '%s' is not available on node '%s'", s, j.node)
		}
		if j.node != r.node.name && !st.Shared {
			return nil, die("can't clone to non-shared storage '%s'", s)
		}
		j.target = st
	}
	var err error
	if j.src, err = r.load(); err != nil {
		return nil, die("unable to find configuration file for VM %d on node '%s'", r.vmid, r.node.name)
	}
	if err := j.src.checkLock(); err != nil {
		return nil, err
	}
	full, given := p["full"]
	j.full = given && full == "1" || !given && !j.src.template()
	if !j.full && j.target != nil {
		return nil, die("parameter 'storage' not allowed for linked clones")
	}
	if !j.full && j.format != "" {
		return nil, die("parameter 'format' not allowed for linked clones")
	}
	if s := p["snapname"]; s != "" {
		return nil, die("snapshot '%s' does not exist", s)
	}
	return j, nil
}

// mayClone checks storages and bridges, and that the disks can be cloned.
func (c *Cluster) mayClone(who caller, j *cloneJob) error {
	shared := true
	for _, k := range c.disks(j.src.config) {
		d, err := c.parseDrive(k, j.src.config[k])
		if err != nil {
			return err
		}
		st, _, err := c.parse(d.file)
		if err != nil {
			return err
		}
		shared = shared && st.Shared
		if j.target != nil {
			st = j.target
		}
		if err := c.need(who, "/storage/"+st.ID, "Datastore.AllocateSpace"); err != nil {
			return err
		}
		if err := c.holdsImages(st.ID); err != nil {
			return err
		}
		if !j.full && !strings.Contains(d.file, "base-") && !cloudRE.MatchString(d.file) {
			return die("Linked clone feature is not supported for '%s' (%s)", d.file, k)
		}
	}
	if j.node != j.src.node && !shared {
		return die("can't clone VM to node '%s' (VM uses local storage)", j.node)
	}
	return c.needBridges(who, j.src.config)
}

func (c *Cluster) runClone(t *task, j *cloneJob, dst *vm) error {
	t.logf("creating a clone of VM %d with ID %d", j.src.id, j.id)
	config := maps.Clone(j.src.config)
	for _, k := range []string{"template", "lock", "vmstate", "parent"} {
		delete(config, k)
	}
	for k := range config {
		if strings.HasPrefix(k, "unused") {
			delete(config, k)
		}
	}
	for _, k := range c.disks(j.src.config) {
		if err := c.cloneDisk(t, j, k, config); err != nil {
			return err
		}
	}
	if len(c.disks(j.src.config)) == 0 {
		if err := t.sleep(c.took("qmclone", 500*time.Millisecond)); err != nil {
			return err
		}
	}
	for k, val := range config {
		if netRE.MatchString(k) {
			nic, err := c.parseNIC(k, val)
			if err != nil {
				return err
			}
			delete(nic, "macaddr")
			config[k] = printNIC(nic)
		}
	}
	config["smbios1"], config["vmgenid"] = "uuid="+newUUID(), newUUID()
	name := j.params["name"]
	if name == "" {
		name = "Copy-of-VM-" + j.src.name()
	}
	config["name"] = name
	if d, ok := j.params["description"]; ok {
		if d = strings.TrimRight(d, "\n"); d != "" {
			config["description"] = d
		} else {
			delete(config, "description")
		}
	}
	dst.config, dst.node = config, j.node
	return nil
}
