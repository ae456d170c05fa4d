package pvefake

import (
	"fmt"
	"regexp"
	"strings"
)

var serialRE = regexp.MustCompile(`^serial\d+$`)

// set writes one key, with what Proxmox does to its value on the way.
func (c *Cluster) set(v *vm, key, val string, who caller) error {
	live := c.live(v, key)
	switch {
	case driveRE.MatchString(key):
		return c.setDrive(v, key, val, who)
	case netRE.MatchString(key):
		nic, err := c.parseNIC(key, val)
		if err != nil {
			return err
		}
		val = printNIC(nic)
	case serialRE.MatchString(key):
		if val != "socket" {
			return die("only root can modify '%s' config for real devices", key)
		}
		if err := c.need(who, fmt.Sprintf("/vms/%d", v.id), "VM.Config.HWType"); err != nil {
			return err
		}
	case key == "tags":
		val = normalTags(val)
		if err := c.mayTag(who, v.id, v.config["tags"], val); err != nil {
			return err
		}
		if val == "" {
			v.write(key, nil, live)
			return nil
		}
	case key == "description":
		trimmed := strings.TrimRight(val, "\n")
		if trimmed == "" {
			// An empty text removes the key; one of newlines alone is lost on
			// the way to the file, where the old one stays.
			if val == "" {
				v.write(key, nil, live)
			}
			return nil
		}
		val = trimmed
	}
	c.appendBoot(v, key, live)
	v.write(key, &val, live)
	return nil
}

// appendBoot adds a new bootable device to the boot order.
func (c *Cluster) appendBoot(v *vm, key string, live bool) {
	if _, known := v.config[key]; known || !bootDevRE.MatchString(key) {
		return
	}
	boot, ok := v.config["boot"]
	if p := v.pending["boot"]; p != nil {
		boot, ok = *p, true
	}
	if ok {
		boot = bootOrder(boot, key, "")
		v.write("boot", &boot, live)
	}
}

func (c *Cluster) setDrive(v *vm, key, val string, who caller) error {
	d, err := c.parseDrive(key, val)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/vms/%d", v.id)
	priv := "VM.Config.Disk"
	if d.cdrom() {
		priv = "VM.Config.CDROM"
	}
	if err := c.need(who, path, priv); err != nil {
		return err
	}
	if id, ok := strings.CutSuffix(d.file, ":cloudinit"); ok {
		st, err := c.usable(id, v.node)
		if err != nil {
			return err
		}
		d.file = st.volid(c.newCloudDrive(st, v.node, v.id))
		d.opts["media"] = "cdrom"
	} else if m := newDiskRE.FindStringSubmatch(d.file); m != nil {
		if err := c.allocate(v, &d, m[1], m[2]); err != nil {
			return err
		}
	} else if !d.empty() {
		_, vol := c.lookup(v.node, d.file)
		if vol == nil {
			return die("volume '%s' does not exist", d.file)
		}
		d.opts["size"] = printSize(vol.size)
	}
	live := c.live(v, key)
	if old, ok := v.config[key]; ok && live {
		if o, err := c.parseDrive(key, old); err == nil && !o.cdrom() && !o.empty() && o.file != d.file {
			if err := c.need(who, path, "VM.Config.Disk"); err != nil {
				return err
			}
			v.config[c.freeUnused(v)] = o.file
		}
	}
	c.appendBoot(v, key, live)
	text := d.String()
	v.write(key, &text, live)
	return nil
}

// allocate makes the disk that "storage:GiB" asks for.
func (c *Cluster) allocate(v *vm, d *drive, storageID, size string) error {
	st, err := c.usable(storageID, v.node)
	if err != nil {
		return err
	}
	n, ok := parseSize(size + "G")
	if !ok {
		return die("unable to parse size '%s'", size)
	}
	vol := c.newDisk(st, v.node, v.id, n, d.opts["format"])
	delete(d.opts, "format")
	d.file = st.volid(vol)
	d.opts["size"] = printSize(n)
	return nil
}

func (c *Cluster) freeUnused(v *vm) string {
	for i := 0; ; i++ {
		k := fmt.Sprintf("unused%d", i)
		if _, taken := v.config[k]; !taken {
			return k
		}
	}
}

// remove deletes one key: a disk becomes unused, and with force its volume
// goes too.
func (c *Cluster) remove(v *vm, key string, ch *change) error {
	old, ok := v.config[key]
	if !ok {
		delete(v.pending, key)
		return nil
	}
	path := fmt.Sprintf("/vms/%d", v.id)
	live := c.live(v, key)
	switch {
	case driveRE.MatchString(key):
		d, err := c.parseDrive(key, old)
		if err != nil {
			return err
		}
		priv := "VM.Config.Disk"
		if d.cdrom() {
			priv = "VM.Config.CDROM"
		}
		if err := c.need(ch.who, path, priv); err != nil {
			return err
		}
		if live && !d.cdrom() && !d.empty() {
			if !ch.force {
				v.config[c.freeUnused(v)] = d.file
			} else if err := c.dropOwned(v, d.file); err != nil {
				return err
			}
		}
	case strings.HasPrefix(key, "unused"):
		if err := c.need(ch.who, path, "VM.Config.Disk"); err != nil {
			return err
		}
		if err := c.dropOwned(v, old); err != nil {
			return err
		}
	case key == "tags":
		if err := c.mayTag(ch.who, v.id, old, ""); err != nil {
			return err
		}
	case serialRE.MatchString(key):
		if err := c.need(ch.who, path, "VM.Config.HWType"); err != nil {
			return err
		}
	}
	if boot, ok := v.config["boot"]; ok && live {
		boot = bootOrder(boot, "", key)
		v.config["boot"] = boot
	}
	v.write(key, nil, live)
	return nil
}

// dropOwned removes a volume if it is the VM's own.
func (c *Cluster) dropOwned(v *vm, volid string) error {
	st, vol := c.lookup(v.node, volid)
	if vol == nil || vol.vmid != v.id {
		return nil
	}
	if st.children(v.node, vol.name) {
		return die("base volume '%s' is still in use by linked cloned", st.volid(vol))
	}
	delete(st.on(v.node), vol.name)
	return nil
}

func unlinkDisks(r *request) (any, error) {
	r.params["delete"] = r.params["idlist"]
	delete(r.params, "idlist")
	return putConfig(r)
}
