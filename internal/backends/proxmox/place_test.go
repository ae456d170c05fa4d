//go:build pve || proxmox_real

package proxmox

import (
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

// cluster is three nodes of 16 GiB with a shared and a local storage.
func cluster(change ...func(*pve.Resources)) *snapshot {
	var r pve.Resources
	for _, name := range []string{"a", "b", "c"} {
		r.Nodes = append(r.Nodes, pve.Node{Name: name, Online: true, CPUs: 8, Memory: 16 * gib, MemoryIn: 1 * gib})
		r.Storages = append(r.Storages,
			pve.Storage{Name: "ceph", Node: name, Shared: true, Available: true, Content: []string{"images"}, Size: 1000 * gib},
			pve.Storage{Name: "lvm", Node: name, Available: true, Content: []string{"images"}, Size: 100 * gib},
			pve.Storage{Name: "seeds", Node: name, Shared: true, Available: true, Content: []string{"iso"}, Size: 10 * gib})
	}
	for _, f := range change {
		f(&r)
	}
	return newSnapshot(time.Now(), r)
}

func used(node string, memory int64) func(*pve.Resources) {
	return func(r *pve.Resources) {
		for i := range r.Nodes {
			if r.Nodes[i].Name == node {
				r.Nodes[i].MemoryIn = memory
			}
		}
	}
}

func on(node, storage string) template {
	return template{vm: pve.VM{ID: 9000, Node: node}, size: 2 * gib, storage: storage, storages: []string{storage}}
}

func TestPlacement(t *testing.T) {
	small := need{cpus: 1, memory: 1 * gib, disk: 10 * gib}
	for name, c := range map[string]struct {
		conf      Config
		limits    backends.Limits
		snap      *snapshot
		templates []template
		need      need
		promised  []promise
		want      string // node, or what the error says
	}{
		"between equals, where the template is": {snap: cluster(), templates: []template{on("b", "ceph")}, need: small, want: "b"},
		"where most memory is free":             {snap: cluster(used("a", 8*gib), used("b", 12*gib)), templates: []template{on("b", "ceph")}, need: small, want: "c"},
		"on the configured nodes only":          {conf: Config{Nodes: []string{"a"}}, snap: cluster(used("a", 8*gib)), templates: []template{on("b", "ceph")}, need: small, want: "a"},
		"on the template's node, if its disks are local": {
			snap: cluster(used("b", 12*gib)), templates: []template{on("b", "lvm")}, need: small, want: "b"},
		"on one of several templates' nodes, if their disks are local": {
			snap: cluster(used("b", 12*gib)), templates: []template{on("b", "lvm"), on("c", "lvm")}, need: small, want: "c"},
		"on the template's node, if that is the rule": {
			conf: Config{TemplateStorage: "local"}, snap: cluster(used("b", 12*gib)), templates: []template{on("b", "ceph")}, need: small, want: "b"},
		"nowhere, if only shared templates count and there are none": {
			conf: Config{TemplateStorage: "shared"}, snap: cluster(), templates: []template{on("b", "lvm")}, need: small, want: "not all its disks are on shared storage"},
		"at home, if a full clone goes to a storage that is not shared": {
			conf: Config{CloneMode: "full", Storage: "lvm"}, snap: cluster(used("b", 12*gib)), templates: []template{on("b", "ceph")}, need: small, want: "b"},
		"nowhere without memory":     {snap: cluster(), templates: []template{on("b", "ceph")}, need: need{cpus: 1, memory: 32 * gib}, want: "MiB of memory are left"},
		"nowhere without processors": {snap: cluster(), templates: []template{on("b", "ceph")}, need: need{cpus: 9, memory: gib}, want: "8 processors are left"},
		"with overcommitted processors": {limits: limits(2, 1), snap: cluster(), templates: []template{on("b", "ceph")},
			need: need{cpus: 9, memory: gib}, want: "b"},
		"with overcommitted memory": {limits: limits(1, 3), snap: cluster(), templates: []template{on("b", "ceph")},
			need: need{cpus: 1, memory: 40 * gib}, want: "b"},
		"nowhere without space": {snap: cluster(), templates: []template{on("b", "lvm")}, need: need{cpus: 1, memory: gib, disk: 101 * gib}, want: "storage lvm has 100 GiB left"},
		"elsewhere than was promised to another": {snap: cluster(), templates: []template{on("b", "ceph")}, need: small,
			promised: []promise{{node: "b", memory: 14 * gib}}, want: "a"},
		"nowhere, if shared space is promised": {snap: cluster(), templates: []template{on("b", "ceph")}, need: small,
			promised: []promise{{node: "a", storage: "ceph", disk: 995 * gib}}, want: "storage ceph has 5 GiB left"},
		"not on a node that is offline": {snap: cluster(func(r *pve.Resources) { r.Nodes[0].Online = false }, used("b", 8*gib), used("c", 9*gib)),
			templates: []template{on("c", "ceph")}, need: small, want: "b"},
		"nowhere, if the template's node is offline": {snap: cluster(func(r *pve.Resources) { r.Nodes[0].Online = false }),
			templates: []template{on("a", "ceph")}, need: small, want: "its node a is offline"},
		"not where seeds cannot be": {snap: cluster(func(r *pve.Resources) { r.Storages[2].Available = false }), templates: []template{on("a", "ceph")}, need: small, want: "b"},
		"nowhere, if no memory may be seen": {snap: cluster(func(r *pve.Resources) {
			for i := range r.Nodes {
				r.Nodes[i].Memory = 0
			}
		}), templates: []template{on("a", "ceph")}, need: small, want: "Sys.Audit on /nodes/a"},
		"beside what stopped ones of ours will take": {snap: cluster(func(r *pve.Resources) {
			r.VMs = append(r.VMs, pve.VM{ID: 1, Type: "qemu", Node: "a", Name: "pf-x", Status: "stopped", Memory: 15 * gib})
		}), templates: []template{on("a", "ceph")}, need: need{cpus: 1, memory: 2 * gib}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			c.conf.SeedStorage = "seeds"
			r := rules{conf: c.conf.withDefaults(), limits: c.limits, ours: func(v pve.VM) bool { return strings.HasPrefix(v.Name, "pf-") }}
			p, err := r.choose(c.snap, c.templates, c.need, c.promised)
			if err != nil {
				if backends.Class(err) != backends.ErrNoCapacity || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				return
			}
			if p.node != c.want {
				t.Errorf("got %s, want %s", p.node, c.want)
			}
		})
	}
}

func limits(cpus, memory float64) (l backends.Limits) {
	l.Overcommit.VCPUs, l.Overcommit.Memory = cpus, memory
	return l
}

func TestProxiesSpreadOverTheNodes(t *testing.T) {
	for name, c := range map[string]struct {
		conf      func(*Config, *backends.HostConfig)
		templates []pvefake.VMSpec
		want      map[string]int
	}{
		"from one template on shared storage": {
			conf: func(*Config, *backends.HostConfig) {}, want: map[string]int{"pve1": 2, "pve2": 2}},
		"from a template of one name on each node": {
			conf: func(c *Config, hc *backends.HostConfig) {
				c.SeedStorage, hc.Images["debian-13"] = "local", backends.Image{Template: "per-node"}
			},
			templates: []pvefake.VMSpec{{ID: 9101, Node: "pve1", Name: "per-node", Template: true}, {ID: 9102, Node: "pve2", Name: "per-node", Template: true}},
			want:      map[string]int{"pve1": 2, "pve2": 2}},
		"from one template on one node's storage": {
			conf: func(_ *Config, hc *backends.HostConfig) {
				hc.Images["debian-13"] = backends.Image{Template: "9101"}
			},
			templates: []pvefake.VMSpec{{ID: 9101, Node: "pve1", Name: "per-node", Template: true}}, want: map[string]int{"pve1": 4}},
		"by full clones to a shared storage": {
			conf: func(c *Config, _ *backends.HostConfig) { c.CloneMode, c.Storage = "full", "shared" }, want: map[string]int{"pve1": 2, "pve2": 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pvefake.Options{}, c.conf)
			for _, s := range c.templates {
				r.c.AddVM(s)
			}
			r.c.RefreshStats()
			got := map[string]int{}
			for range 4 {
				req := r.request()
				_, vm := r.mustEnsure(req)
				got[vm.Node]++
				defer r.mustDelete(req.Ref)
			}
			for node, n := range c.want {
				if got[node] != n {
					t.Errorf("got %v, want %v", got, c.want)
				}
			}
		})
	}
}
