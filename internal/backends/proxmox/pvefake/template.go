package pvefake

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// makeBase turns a disk into a template's: vm-N-… becomes base-N-….
func (c *Cluster) makeBase(st *storage, node string, vol *volume) {
	delete(st.on(node), vol.name)
	vol.name = strings.Replace(vol.name, "vm-", "base-", 1)
	st.put(node, vol)
}

func makeTemplate(r *request) (any, error) {
	v, err := r.load()
	if err != nil {
		return nil, err
	}
	if err := v.checkLock(); err != nil {
		return nil, err
	}
	if v.template() {
		return nil, die("you can't convert a template to a template")
	}
	if v.running {
		return nil, die("you can't convert a VM to template if VM is running")
	}
	return r.forkVM("qmtemplate", func(t *task) error {
		if err := t.sleep(300 * time.Millisecond); err != nil {
			return err
		}
		for _, k := range slices.Sorted(maps.Keys(v.config)) {
			if !driveRE.MatchString(k) {
				continue
			}
			d, err := r.c.parseDrive(k, v.config[k])
			if err != nil || d.cdrom() || d.empty() {
				continue
			}
			if st, vol := r.c.lookup(v.node, d.file); vol != nil {
				r.c.makeBase(st, v.node, vol)
				d.file = st.volid(vol)
				v.config[k] = d.String()
			}
		}
		v.config["template"] = "1"
		return nil
	})
}
