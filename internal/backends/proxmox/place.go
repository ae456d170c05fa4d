package proxmox

import (
	"fmt"
	"slices"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// place is where a VM is made: a clone of template, on node, with its disks on storage.
type place struct {
	template template
	node     string
	storage  string
}

// need is what a VM takes.
type need struct {
	cpus   int
	memory int64 // bytes
	disk   int64 // bytes of the disk that it boots from; 0: the template's
}

// room is what a node has left for proxies.
type room struct {
	cpus   int
	memory int64 // bytes
	total  int64 // bytes of memory that the node has
}

// rules are the configuration that placement goes by.
type rules struct {
	conf   Config
	limits backends.Limits
	ours   func(pve.VM) bool
}

func factor(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}

// rooms are what each node that is online and allowed has left. Memory is what the
// node has, times overcommit, less the reserve, less what every VM that runs or is ours may
// use; without overcommit no more than is free at the moment. Processors count ours only,
// since those of others are shared everywhere.
func (r rules) rooms(snap *snapshot, promised []promise) map[string]room {
	out := map[string]room{}
	overcommit := factor(r.limits.Overcommit.Memory)
	reserve := int64(r.limits.Reserve.MemoryMiB) * mib
	for _, n := range snap.Nodes {
		if !n.Online || n.Memory == 0 || len(r.conf.Nodes) > 0 && !slices.Contains(r.conf.Nodes, n.Name) {
			continue
		}
		left := room{
			cpus:   int(float64(n.CPUs) * factor(r.limits.Overcommit.VCPUs)),
			memory: int64(float64(n.Memory)*overcommit) - reserve,
			total:  n.Memory,
		}
		for _, v := range snap.VMs {
			if v.Node != n.Name || v.Template {
				continue
			}
			if ours := r.ours(v); ours || v.Status == "running" {
				left.memory -= v.Memory
				if ours {
					left.cpus -= v.CPUs
				}
			}
		}
		if overcommit <= 1 {
			left.memory = min(left.memory, n.Memory-n.MemoryIn-reserve)
		}
		for _, p := range promised {
			if p.node == n.Name {
				left.memory -= p.memory
				left.cpus -= p.cpus
			}
		}
		out[n.Name] = left
	}
	return out
}

// space is what a storage has left for disks, as a node sees it. ok is false when the node
// does not have it, it is not active, or it does not take that content.
func (r rules) space(snap *snapshot, node, storage, content string, promised []promise) (free, total int64, shared, ok bool) {
	for _, s := range snap.Storages {
		if s.Node != node || s.Name != storage || !s.Available || !slices.Contains(s.Content, content) {
			continue
		}
		free = int64(float64(s.Free())*factor(r.limits.Overcommit.Disk)) - int64(r.limits.Reserve.DiskGiB)*gib
		for _, p := range promised {
			if p.storage == storage && (s.Shared || p.node == node) {
				free -= p.disk
			}
		}
		return free, s.Size, s.Shared, true
	}
	return 0, 0, false, false
}

// places are all that the templates allow by where their disks are, room aside.
func (r rules) places(snap *snapshot, templates []template) (out []place, refused []string) {
	for _, t := range templates {
		if n, known := snap.nodes[t.vm.Node]; !known || !n.Online {
			refused = append(refused, fmt.Sprintf("template %d: its node %s is offline", t.vm.ID, t.vm.Node))
			continue
		}
		shared := true
		for _, s := range t.storages {
			_, _, is, ok := r.space(snap, t.vm.Node, s, "images", nil)
			shared = shared && ok && is
		}
		if r.conf.TemplateStorage == "shared" && !shared {
			refused = append(refused, fmt.Sprintf("template %d: not all its disks are on shared storage", t.vm.ID))
			continue
		}
		for _, n := range snap.Nodes {
			if !n.Online || len(r.conf.Nodes) > 0 && !slices.Contains(r.conf.Nodes, n.Name) {
				continue
			}
			p := place{template: t, node: n.Name, storage: t.storage}
			if r.conf.Storage != "" {
				p.storage = r.conf.Storage
			}
			if why := r.refuses(snap, p, shared); why != "" {
				refused = append(refused, fmt.Sprintf("node %s: %s", n.Name, why))
				continue
			}
			out = append(out, p)
		}
	}
	return out, refused
}

// refuses says why a VM cannot be made there, whatever its size.
func (r rules) refuses(snap *snapshot, p place, shared bool) string {
	_, _, target, ok := r.space(snap, p.node, p.storage, "images", nil)
	if !ok {
		return fmt.Sprintf("storage %s is not active there, or does not take disks", p.storage)
	}
	if _, _, _, ok := r.space(snap, p.node, r.conf.SeedStorage, "iso", nil); !ok {
		return fmt.Sprintf("seed storage %s is not active there, or does not take ISO images", r.conf.SeedStorage)
	}
	if p.node == p.template.vm.Node {
		return ""
	}
	switch {
	case r.conf.TemplateStorage == "local":
		return fmt.Sprintf("template %d is on another node", p.template.vm.ID)
	case !shared || !target:
		return fmt.Sprintf("template %d is on another node and not on shared storage", p.template.vm.ID)
	}
	return ""
}

// choose returns the place with the most left, memory or disk, whichever is scarcer, as a
// part of what there is; names decide between equals. The error is NoCapacity and says why
// each place was refused.
func (r rules) choose(snap *snapshot, templates []template, n need, promised []promise) (place, error) {
	all, refused := r.places(snap, templates)
	rooms := r.rooms(snap, promised)
	best, score := -1, 0.0
	for i, p := range all {
		left, known := rooms[p.node]
		free, total, _, _ := r.space(snap, p.node, p.storage, "images", promised)
		disk := max(n.disk, p.template.size)
		why := ""
		switch {
		case !known:
			why = "its memory is not known; the token lacks Sys.Audit on /nodes/" + p.node
		case left.memory < n.memory:
			why = fmt.Sprintf("%d MiB of memory are left, %d are needed", left.memory/mib, n.memory/mib)
		case left.cpus < n.cpus:
			why = fmt.Sprintf("%d processors are left for proxies, %d are needed", left.cpus, n.cpus)
		case free < disk:
			why = fmt.Sprintf("storage %s has %d GiB left for proxies, %d are needed", p.storage, free/gib, disk/gib)
		}
		if why != "" {
			refused = append(refused, fmt.Sprintf("node %s: %s", p.node, why))
			continue
		}
		s := min(float64(left.memory-n.memory)/float64(max(left.total, 1)), float64(free-disk)/float64(max(total, 1)))
		if p.node == p.template.vm.Node {
			s += 1e-9 // between equals, where the template is
		}
		if best < 0 || s > score {
			best, score = i, s
		}
	}
	if best < 0 {
		return place{}, backends.Errorf(backends.ErrNoCapacity, "choose node", "no node has room: %s", strings.Join(slices.Compact(refused), "; "))
	}
	return all[best], nil
}
