package pvefake

import (
	"fmt"
	"time"
)

// cloneDisk makes one disk of the clone and writes it into config.
func (c *Cluster) cloneDisk(t *task, j *cloneJob, key string, config map[string]string) error {
	d, err := c.parseDrive(key, config[key])
	if err != nil {
		return err
	}
	src, base := c.lookup(j.src.node, d.file)
	if base == nil {
		return die("volume '%s' does not exist", d.file)
	}
	if cloudRE.MatchString(d.file) { // always made anew
		vol := c.newCloudDrive(src, j.src.node, j.id)
		d.file = src.volid(vol)
		config[key] = d.String()
		return nil
	}
	st, how := src, "linked"
	if j.target != nil {
		st = j.target
	}
	takes := c.took("qmclone", 500*time.Millisecond)
	if j.full {
		how, takes = "full", c.took("qmclone", 4*time.Second)
	}
	t.logf("create %s clone of drive %s (%s)", how, key, d.file)
	if _, err := c.usable(st.ID, j.src.node); err != nil {
		return err
	}
	format := base.format
	if j.format != "" {
		format = j.format
	}
	if !j.full && st.files() {
		format = "qcow2"
	}
	vol := c.newDisk(st, j.src.node, j.id, base.size, format)
	t.logf("Formatting '%s', fmt=%s size=%d", st.path(vol.name), vol.format, vol.size)
	if !j.full {
		if st.files() {
			vol.parent = base.name
		}
		vol.used = 528384
		if err := t.sleep(takes); err != nil {
			return err
		}
	} else if err := c.copyDisk(t, st, base, vol, takes, src.path(base.name), j.src.node); err != nil {
		return err
	}
	d.file = st.volid(vol)
	delete(d.opts, "format")
	config[key] = d.String()
	return nil
}

// copyDisk fills a full clone bit by bit, until the storage is full.
func (c *Cluster) copyDisk(t *task, st *storage, base, vol *volume, takes time.Duration, from, node string) error {
	t.logf("allocated target volume '%s'", st.volid(vol))
	const steps = 4
	room := st.avail(node) + vol.used
	for i := range int64(steps) {
		t.logf("transferred %s of %s (%.2f%%)", printSize(base.size*i/steps), printSize(base.size), float64(100*i)/steps)
		convert := fmt.Sprintf("copy failed: command '/usr/bin/qemu-img convert -p -n -f %s -O %s %s zeroinit:%s' failed: ",
			base.format, vol.format, from, st.path(vol.name))
		if err := t.sleep(takes / steps); err != nil {
			return die("%s%s", convert, err)
		}
		vol.used = min(base.used*(i+1)/steps, room)
		if base.used*(i+1)/steps > room {
			t.logf("qemu-img: error while writing at byte %d: No space left on device", vol.used)
			return die("%sexit code 1", convert)
		}
	}
	t.logf("transferred %[1]s of %[1]s (100.00%%)", printSize(base.size))
	return nil
}
