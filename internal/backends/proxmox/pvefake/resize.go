package pvefake

import (
	"strings"
	"time"
)

func resizeDisk(r *request) (any, error) {
	if err := r.noSkiplock(); err != nil {
		return nil, err
	}
	return r.forkVM("resize", func(t *task) error {
		if err := t.sleep(r.c.took("resize", 300*time.Millisecond)); err != nil {
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
		if d := r.params["digest"]; d != "" && d != v.digest() {
			return die("checksum mismatch (file change by other user?)")
		}
		if err := v.checkLock(); err != nil {
			return err
		}
		return r.c.resize(t, v, r.params["disk"], r.params["size"])
	})
}

func (c *Cluster) resize(t *task, v *vm, key, size string) error {
	val, ok := v.config[key]
	if !ok {
		return die("disk '%s' does not exist", key)
	}
	d, err := c.parseDrive(key, val)
	if err != nil {
		return err
	}
	if d.empty() {
		return die("unable to parse volume ID '%s'", d.file)
	}
	if d.cdrom() {
		return die("you can't resize a cdrom")
	}
	st, vol := c.lookup(v.node, d.file)
	if vol == nil {
		return die("volume '%s' does not exist", d.file)
	}
	if _, err := c.usable(st.ID, v.node); err != nil {
		return err
	}
	rel, grow := strings.CutPrefix(size, "+")
	want, ok := parseSize(rel)
	if !ok {
		return die("unable to parse size '%s'", size)
	}
	if grow {
		want += vol.size
	}
	switch {
	case want < vol.size:
		return die("shrinking disks is not supported")
	case want == vol.size:
		return nil
	case v.template():
		t.logf("qemu-img: Could not open '%[1]s': Could not open '%[1]s': Operation not permitted", st.path(vol.name))
		return die("command '/usr/bin/qemu-img resize '--preallocation=metadata' -f %s %s %d' failed: exit code 1",
			vol.format, st.path(vol.name), want)
	}
	if !v.running {
		t.logf("Image resized.")
	}
	vol.size = want
	d.opts["size"] = printSize(want)
	v.config[key] = d.String()
	return nil
}
