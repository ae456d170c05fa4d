package pvefake

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func getVersion(r *request) (any, error) {
	v := r.c.version.String()
	return map[string]any{"version": v, "release": v[:strings.LastIndex(v, ".")], "repoid": "14a22df35955d97d"}, nil
}

func (c *Cluster) nodeRow(n *node) map[string]any {
	d := map[string]any{"id": "node/" + n.name, "type": "node", "node": n.name, "status": "online", "level": "",
		"cpu": 0.02, "maxcpu": n.cpus, "mem": c.memUsed(n), "maxmem": n.memory, "disk": int64(6 << 30), "maxdisk": n.disk,
		"uptime": int(c.clock.now().Sub(c.clock.start).Seconds()) + 86400}
	if n.down {
		return map[string]any{"id": d["id"], "type": "node", "node": n.name, "status": "offline"}
	}
	return d
}

// memUsed is what the node itself and its running guests take.
func (c *Cluster) memUsed(n *node) int64 {
	used := n.memUsed
	for _, v := range c.vms {
		if v.node == n.name && v.running {
			used += v.memory()
		}
	}
	return min(used, n.memory)
}

func listNodes(r *request) (any, error) {
	rows := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(r.c.nodes)) {
		d := r.c.nodeRow(r.c.nodes[name])
		d["ssl_fingerprint"] = nil
		if !r.c.allowed(r.who, "/nodes/"+name, false, "Sys.Audit") {
			for _, k := range []string{"cpu", "maxcpu", "mem", "maxmem", "disk", "maxdisk", "uptime"} {
				delete(d, k)
			}
		}
		rows = append(rows, d)
	}
	return rows, nil
}

func nodeStatus(r *request) (any, error) {
	n := r.node
	used := r.c.memUsed(n)
	return map[string]any{
		"uptime": 86400, "cpu": 0.02, "idle": 0, "wait": 0, "loadavg": []string{"0.10", "0.20", "0.15"},
		"kversion": "Linux 6.17.2-1-pve #1 SMP PREEMPT_DYNAMIC", "pveversion": "pve-manager/" + r.c.version.String() + "/14a22df35955d97d",
		"boot-info":      map[string]any{"mode": "efi", "secureboot": 0},
		"current-kernel": map[string]any{"sysname": "Linux", "release": "6.17.2-1-pve", "machine": "x86_64", "version": "#1 SMP PREEMPT_DYNAMIC"},
		"cpuinfo": map[string]any{"cpus": n.cpus, "cores": n.cpus, "sockets": 1, "model": "AMD EPYC", "mhz": "2596.118",
			"hvm": "1", "user_hz": 100, "flags": "svm", "vendor": "AuthenticAMD", "family": "26"},
		"memory": map[string]any{"total": n.memory, "used": used, "free": n.memory - used, "available": n.memory - used},
		"swap":   map[string]any{"total": 0, "used": 0, "free": 0},
		"rootfs": map[string]any{"total": n.disk, "used": int64(6 << 30), "avail": n.disk - 6<<30, "free": n.disk - 6<<30},
		"ksm":    map[string]any{"shared": 0},
	}, nil
}

func clusterStatus(r *request) (any, error) {
	c := r.c
	rows := []map[string]any{}
	if len(c.nodes) > 1 {
		rows = append(rows, map[string]any{"id": "cluster", "type": "cluster", "name": "fake", "nodes": len(c.nodes),
			"quorate": 1, "version": len(c.nodes)})
	}
	for i, name := range c.order {
		n := c.nodes[name]
		rows = append(rows, map[string]any{"id": "node/" + name, "type": "node", "name": name, "nodeid": i + 1,
			"ip": fmt.Sprintf("192.0.2.%d", i+1), "online": bit(!n.down), "local": bit(name == r.at), "level": ""})
	}
	return rows, nil
}

func nextID(r *request) (any, error) {
	if id := r.params["vmid"]; id != "" {
		if r.c.vms[r.vmid] != nil {
			return nil, paramErr("vmid", fmt.Sprintf("VM %d already exists", r.vmid))
		}
		return id, nil
	}
	for id := 100; ; id++ {
		if r.c.vms[id] == nil {
			return strconv.Itoa(id), nil
		}
	}
}

var defaultPaths = []string{"/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"}

func getPermissions(r *request) (any, error) {
	c, who := r.c, r.who
	if u := r.params["userid"]; u != "" && u != who.String() {
		name, id, _ := strings.Cut(u, "!")
		if name != who.user || who.token != "" {
			if err := c.need(who, "/access", "Sys.Audit"); err != nil {
				return nil, err
			}
		}
		who = caller{name, id}
	}
	if p := r.params["path"]; p != "" {
		if !strings.HasPrefix(p, "/") {
			return nil, paramErr("path", "invalid ACL path")
		}
		return map[string]any{p: c.privileges(who, p)}, nil
	}
	paths := slices.Clone(defaultPaths)
	for _, p := range slices.Concat(slices.Collect(maps.Values(c.users)), slices.Collect(maps.Values(c.tokens))) {
		for _, g := range p.grants {
			paths = append(paths, g.Path)
		}
	}
	for _, members := range c.pools {
		paths = append(paths, slices.Collect(maps.Keys(members))...)
	}
	out := map[string]any{}
	for _, p := range paths {
		if privs := c.privileges(who, p); len(privs) > 0 {
			out[p] = privs
		}
	}
	return out, nil
}

func listNetwork(r *request) (any, error) {
	want := r.params["type"]
	rows := []map[string]any{}
	for _, b := range slices.Sorted(maps.Keys(r.node.bridges)) {
		switch want {
		case "", "bridge", "any_bridge", "any_local_bridge", "include_sdn":
		default:
			continue
		}
		if want != "" && !r.c.allowed(r.who, "/sdn/zones/localnetwork/"+b, true, "SDN.Audit", "SDN.Use") {
			continue
		}
		rows = append(rows, map[string]any{"iface": b, "type": "bridge", "active": 1, "autostart": 1,
			"method": "static", "families": []string{"inet"}, "priority": 3})
	}
	if want == "" || want == "eth" {
		rows = append(rows, map[string]any{"iface": "eno1", "type": "eth", "active": 1, "exists": 1, "method": "manual", "priority": 2})
	}
	return rows, nil
}

// SetBridges replaces the bridges of a node; a node begins with vmbr0.
func (c *Cluster) SetBridges(node string, bridges ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.knownNode(node)
	n.bridges = map[string]bool{}
	for _, b := range bridges {
		n.bridges[b] = true
	}
}

// SetMemory sets a node's memory and what it uses without guests, in bytes.
func (c *Cluster) SetMemory(node string, total, used int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.knownNode(node)
	n.memory, n.memUsed = total, used
}

func listPools(r *request) (any, error) {
	rows := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(r.c.pools)) {
		if r.params["poolid"] != "" && r.params["poolid"] != name || !r.c.allowed(r.who, "/pool/"+name, false, "Pool.Audit") {
			continue
		}
		d := map[string]any{"poolid": name}
		if r.params["poolid"] != "" {
			members := []map[string]any{}
			for _, v := range r.c.sortedVMs() {
				if r.c.pools[name][fmt.Sprintf("/vms/%d", v.id)] {
					members = append(members, r.c.resource(v))
				}
			}
			d["members"] = members
		}
		rows = append(rows, d)
	}
	return rows, nil
}
