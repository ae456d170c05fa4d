package pvefake

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// notCreated are the parameters of create that are not keys of the config.
var notCreated = []string{"node", "vmid", "archive", "bwlimit", "force", "ha-managed", "import-working-storage",
	"live-restore", "pool", "start", "storage", "unique"}

func createVM(r *request) (any, error) {
	c, path := r.c, fmt.Sprintf("/vms/%d", r.vmid)
	if r.params["archive"] != "" {
		c.t.Errorf("pvefake: creating a VM from an archive is not modelled")
		return nil, &apiError{status: 501, text: "pvefake does not model restore"}
	}
	pool := r.params["pool"]
	if !c.allowed(r.who, path, false, "VM.Allocate") && (pool == "" || !c.allowed(r.who, "/pool/"+pool, false, "VM.Allocate")) {
		return nil, forbidden("")
	}
	set := map[string]string{}
	for k, val := range r.params {
		if !slices.Contains(notCreated, k) {
			set[k] = val
		}
	}
	if err := c.mayConfigure(r.who, r.vmid, slices.Collect(maps.Keys(set))); err != nil {
		return nil, err
	}
	if err := c.needBridges(r.who, set); err != nil {
		return nil, err
	}
	if err := c.mayUseDrives(r.who, r.node.name, r.vmid, set); err != nil {
		return nil, err
	}
	if old := c.vms[r.vmid]; old != nil {
		return nil, die("unable to create VM %d - VM %d already exists on node '%s'", r.vmid, r.vmid, old.node)
	}
	v := c.newVM(r.vmid, r.node.name)
	made := v.config
	v.config = map[string]string{"lock": "create"}
	if pool != "" {
		c.addToPool(pool, v.id)
	}
	return r.forkVM("qmcreate", func(t *task) error {
		fail := func(err error) error {
			if t.died() {
				return err
			}
			c.dropVolumes(v)
			delete(c.vms, v.id)
			return die("unable to create VM %d - %s", v.id, err)
		}
		if err := t.sleep(c.took("qmcreate", 500*time.Millisecond)); err != nil {
			return fail(err)
		}
		v.config = made
		for _, k := range slices.Sorted(maps.Keys(set)) {
			if err := c.set(v, k, set[k], r.who); err != nil {
				return fail(err)
			}
			if driveRE.MatchString(k) && strings.Contains(v.config[k], fmt.Sprintf("vm-%d-", v.id)) {
				t.logf("%s: successfully created disk '%s'", k, v.config[k])
			}
		}
		if v.config["boot"] == "" {
			if devs := c.bootable(v); len(devs) > 0 {
				v.config["boot"] = "order=" + strings.Join(devs, ";")
			}
		}
		c.notify()
		if r.flag("start") {
			_, _ = c.fork(r.who, v.node, "qmstart", fmt.Sprint(v.id), func(t *task) error { return c.start(t, v.node, v.id) })
		}
		return nil
	})
}

// bootable are the devices of a new VM's boot order: the first disk, CD
// drives, NICs.
func (c *Cluster) bootable(v *vm) []string {
	var disks, cds, nics []string
	for _, k := range slices.Sorted(maps.Keys(v.config)) {
		switch {
		case netRE.MatchString(k):
			nics = append(nics, k)
		case driveRE.MatchString(k) && bootDevRE.MatchString(k):
			if d, err := c.parseDrive(k, v.config[k]); err == nil && d.cdrom() {
				cds = append(cds, k)
			} else if len(disks) == 0 {
				disks = append(disks, k)
			}
		}
	}
	return slices.Concat(disks, cds, nics[:min(1, len(nics))])
}
