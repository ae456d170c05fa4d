package proxmox

import (
	"slices"
	"sync"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// markAge is how long a VM's mark is believed in listings. Whatever acts reads it anew.
const markAge = 5 * time.Minute

// markCache remembers what the configurations of VMs said, so that a listing of 200 VMs
// reads only those that are new or changed their name, tags or node.
type markCache struct {
	mu      sync.Mutex // guards the fields that follow
	entries map[int]*cached
	uids    map[string]int
}

// cached is what was read of one VM.
type cached struct {
	vm     pve.VM // as listed when it was read
	at     time.Time
	name   string
	mark   mark
	marked bool
	cds    []string // volumes in its drives
}

func (c *markCache) put(vm pve.VM, conf pve.VMConfig, at time.Time) *cached {
	e := &cached{vm: vm, at: at, name: conf["name"]}
	e.mark, e.marked = parseMark(conf["description"])
	for key, option := range conf {
		if isDiskSlot(key) && isCD(option) {
			e.cds = append(e.cds, volumeOf(option))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries, c.uids = map[int]*cached{}, map[string]int{}
	}
	c.entries[vm.ID] = e
	if e.marked {
		c.uids[e.mark.UID] = vm.ID
	}
	return e
}

// get returns what is remembered of vm, if it is recent and vm is still listed as then.
func (c *markCache) get(vm pve.VM, now time.Time) (*cached, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[vm.ID]
	if !ok || now.Sub(e.at) > markAge || e.vm.Node != vm.Node || e.vm.Lock != vm.Lock || !slices.Equal(e.vm.Tags, vm.Tags) ||
		vm.Name != "" && vm.Name != e.name {
		return nil, false
	}
	return e, true
}

// vmid is where a uid was seen last; 0: nowhere.
func (c *markCache) vmid(uid string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.uids[uid]
}

// uid is whose VM an id was; empty: not known.
func (c *markCache) uid(vmid int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[vmid]; ok && e.marked {
		return e.mark.UID
	}
	return ""
}

// keep drops what is no longer listed.
func (c *markCache) keep(listed map[int]pve.VM) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, e := range c.entries {
		if _, ok := listed[id]; !ok {
			delete(c.entries, id)
			if c.uids[e.mark.UID] == id {
				delete(c.uids, e.mark.UID)
			}
		}
	}
}

// isOurs reports a VM whose remembered mark is o's.
func (c *markCache) isOurs(vm pve.VM, o backends.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[vm.ID]
	return ok && e.marked && e.mark.Owned(o) && e.name == vm.Name
}
