package pvefake

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxDisk is the size of the first disk of the boot order, as the lists show.
func (c *Cluster) maxDisk(v *vm) int64 {
	keys := c.disks(v.config)
	if len(keys) == 0 {
		return 0
	}
	d, _ := c.parseDrive(keys[0], v.config[keys[0]])
	n, _ := parseSize(d.opts["size"])
	return n
}

func (c *Cluster) uptime(v *vm) int {
	if !v.running {
		return 0
	}
	return int(c.clock.now().Sub(v.since) / time.Second)
}

// row is what lists and status/current share.
func (c *Cluster) row(v *vm) map[string]any {
	d := map[string]any{
		"vmid": v.id, "name": v.name(), "status": "stopped", "cpus": v.int("cores", 1) * v.int("sockets", 1),
		"maxmem": v.memory(), "maxdisk": c.maxDisk(v), "uptime": c.uptime(v),
		"cpu": 0, "mem": 0, "memhost": 0, "disk": 0, "netin": 0, "netout": 0,
	}
	if c.version == V8 { // cgroup figures are new in 9
		delete(d, "memhost")
	}
	if v.running {
		d["status"], d["pid"] = "running", v.pid
		d["cpu"], d["mem"] = 0.01, v.memory()/4
		d["diskread"], d["diskwrite"] = 512, 0
		for _, k := range []string{"cpusome", "cpufull", "iosome", "iofull", "memorysome", "memoryfull"} {
			if c.version != V8 {
				d["pressure"+k] = 0
			}
		}
	}
	for _, k := range []string{"tags", "lock"} {
		if val := v.config[k]; val != "" {
			d[k] = val
		}
	}
	if v.template() {
		d["template"] = 1
	}
	if _, ok := v.config["serial0"]; ok {
		d["serial"] = 1
	}
	return d
}

func (v *vm) qmpStatus() string {
	switch {
	case !v.running:
		return "stopped"
	case v.paused:
		return "paused"
	}
	return "running"
}

func currentStatus(r *request) (any, error) {
	v, err := r.load()
	if err != nil {
		return nil, err
	}
	d := r.c.row(v)
	d["qmpstatus"] = v.qmpStatus()
	d["ha"] = map[string]any{"managed": bit(v.ha)}
	if v.ha {
		d["ha"] = map[string]any{"managed": 1, "state": "started"}
	}
	if r.c.agentEnabled(v.config) {
		d["agent"] = 1
	}
	if v.running {
		d["running-machine"], d["running-qemu"] = "pc-i440fx-10.1+pve0", "10.1.2"
	}
	return d, nil
}

func listVMs(r *request) (any, error) {
	rows := []map[string]any{}
	for _, v := range r.c.sortedVMs() {
		if v.node != r.node.name || !r.c.allowed(r.who, fmt.Sprintf("/vms/%d", v.id), false, "VM.Audit") {
			continue
		}
		d := r.c.row(v)
		if r.flag("full") {
			d["qmpstatus"] = v.qmpStatus()
		}
		rows = append(rows, d)
	}
	return rows, nil
}

// stat is a VM as pvestatd last saw it.
type stat struct{ row map[string]any }

func (c *Cluster) observe(v *vm) *stat {
	d := c.row(v)
	delete(d, "pid")
	maps.DeleteFunc(d, func(k string, _ any) bool { return strings.HasPrefix(k, "pressure") })
	d["maxcpu"] = d["cpus"]
	delete(d, "cpus")
	delete(d, "serial")
	delete(d, "tags")
	delete(d, "lock")
	if v.paused {
		d["status"] = "paused"
	}
	for k, def := range map[string]any{"template": 0, "diskread": 0, "diskwrite": 0} {
		if _, ok := d[k]; !ok {
			d[k] = def
		}
	}
	return &stat{d}
}

// pvestatd renews what the lists of the whole cluster say.
func (c *Cluster) pvestatd() {
	defer c.work.Done()
	for c.clock.sleep(c.ctx, c.statTime) == nil {
		c.RefreshStats()
	}
}

// RefreshStats does a round of pvestatd on every node that is up. What is
// known of the guests of one that is down is forgotten; a real cluster keeps
// it for five minutes, which here is one round.
func (c *Cluster) RefreshStats() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.vms {
		v.stat = nil
		if !c.nodes[v.node].down {
			v.stat = c.observe(v)
		}
	}
}

// resource is a VM in /cluster/resources: figures of pvestatd with the lock
// and tags of the config. One not seen yet has neither name nor status.
func (c *Cluster) resource(v *vm) map[string]any {
	d := map[string]any{"id": fmt.Sprintf("qemu/%d", v.id), "type": "qemu", "vmid": v.id, "node": v.node}
	if v.stat != nil {
		maps.Copy(d, v.stat.row)
	} else {
		d["status"] = "unknown"
	}
	d["node"] = v.node
	for _, k := range []string{"tags", "lock"} {
		if val := v.config[k]; val != "" {
			d[k] = val
		}
	}
	if v.ha {
		d["hastate"] = "started"
	}
	if p := c.poolOf(fmt.Sprintf("/vms/%d", v.id)); p != "" {
		d["pool"] = p
	}
	return d
}

func clusterResources(r *request) (any, error) {
	c := r.c
	rows := []map[string]any{}
	want := func(t string) bool { return r.params["type"] == "" || r.params["type"] == t }
	if want("vm") {
		for _, v := range c.sortedVMs() {
			if c.allowed(r.who, fmt.Sprintf("/vms/%d", v.id), false, "VM.Audit") {
				rows = append(rows, c.resource(v))
			}
		}
	}
	if want("node") {
		for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
			if c.allowed(r.who, "/nodes/"+name, false, "Sys.Audit") {
				rows = append(rows, c.nodeRow(c.nodes[name]))
			}
		}
	}
	if want("storage") {
		for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
			for _, s := range c.sortedStorages() {
				if s.here(name) && !s.Disabled && c.mayList(r.who, s.ID) {
					rows = append(rows, c.storageRow(name, s))
				}
			}
		}
	}
	if want("sdn") {
		for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
			if c.allowed(r.who, "/sdn/zones/localnetwork", true, "SDN.Audit", "SDN.Use", "SDN.Allocate") {
				row := map[string]any{"id": "network/" + name + "/zone/localnetwork", "type": "network",
					"network-type": "zone", "network": "localnetwork", "node": name, "status": "ok"}
				if c.version == V8 {
					row = map[string]any{"id": "sdn/" + name + "/localnetwork", "type": "sdn",
						"sdn": "localnetwork", "node": name, "status": "ok"}
				}
				rows = append(rows, row)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b map[string]any) int { return cmp.Compare(a["type"].(string), b["type"].(string)) })
	return rows, nil
}

func (c *Cluster) storageRow(node string, s *storage) map[string]any {
	d := map[string]any{"id": "storage/" + node + "/" + s.ID, "type": "storage", "storage": s.ID, "node": node,
		"plugintype": s.Type, "shared": bit(s.Shared), "content": s.statusOf(node)["content"], "status": "unknown"}
	if !s.Inactive && !c.nodes[node].down {
		d["status"], d["disk"], d["maxdisk"] = "available", s.used(node), s.Total
	}
	return d
}
