package pve

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Version is what a cluster runs.
type Version struct {
	Text  string // "9.2.11"
	Major int    // 0 where unreadable
}

// Version asks for it. Any token may.
func (c *Client) Version(ctx context.Context) (Version, error) {
	var v struct{ Version text }
	if err := c.do(ctx, call{method: http.MethodGet, path: "/version"}, &v); err != nil {
		return Version{}, err
	}
	major, _, _ := strings.Cut(string(v.Version), ".")
	n, _ := strconv.Atoi(major)
	return Version{Text: string(v.Version), Major: n}, nil
}

// Node is a member of the cluster. Without Sys.Audit on it only name and status are known.
type Node struct {
	Name     string
	Online   bool
	CPUs     int
	Memory   int64 // bytes; 0: not known
	MemoryIn int64 // bytes in use
}

// VM is a virtual machine or container as /cluster/resources has it. Existence, node, lock
// and tags are of now; name, status and sizes are up to some ten seconds old, and missing
// for a VM that is new or being cloned.
type VM struct {
	ID       int
	Type     string // "qemu" or "lxc"
	Node     string
	Name     string // empty: not known yet
	Status   string // "running", "stopped", "unknown"
	Lock     string
	Tags     []string
	Template bool
	Memory   int64 // bytes
	CPUs     int
	Disk     int64 // bytes of the disk that it boots from
}

// Storage is a storage as one node sees it.
type Storage struct {
	Name      string
	Node      string
	Shared    bool
	Available bool
	Content   []string
	Size      int64 // bytes
	Used      int64
}

// Free is what is left, in bytes.
func (s Storage) Free() int64 { return max(s.Size-s.Used, 0) }

// Resources are everything in a cluster that the token may see, from one request.
type Resources struct {
	Nodes    []Node
	VMs      []VM
	Storages []Storage
}

// Resources reads them.
func (c *Client) Resources(ctx context.Context) (Resources, error) {
	var items []struct {
		Type, Node, Storage, Status, Content text
		ID                                   text
		VMID                                 number
		Name, Lock, Tags                     text
		Template, Shared                     flag
		MaxMem, Mem, MaxCPU, MaxDisk, Disk   number
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: "/cluster/resources"}, &items); err != nil {
		return Resources{}, err
	}
	var r Resources
	for _, i := range items {
		switch i.Type {
		case "node":
			r.Nodes = append(r.Nodes, Node{Name: string(i.Node), Online: i.Status == "online", CPUs: int(i.MaxCPU),
				Memory: int64(i.MaxMem), MemoryIn: int64(i.Mem)})
		case "qemu", "lxc":
			v := VM{ID: int(i.VMID), Type: string(i.Type), Node: string(i.Node), Name: string(i.Name), Status: string(i.Status),
				Lock: string(i.Lock), Tags: Tags(string(i.Tags)), Template: bool(i.Template), Memory: int64(i.MaxMem), CPUs: int(i.MaxCPU), Disk: int64(i.MaxDisk)}
			if v.Name == "VM "+strconv.Itoa(v.ID) {
				v.Name = "" // how PVE shows a VM whose configuration has no name
			}
			r.VMs = append(r.VMs, v)
		case "storage":
			r.Storages = append(r.Storages, Storage{Name: string(i.Storage), Node: string(i.Node), Shared: bool(i.Shared),
				Available: i.Status == "available", Content: strings.Split(string(i.Content), ","), Size: int64(i.MaxDisk), Used: int64(i.Disk)})
		}
	}
	return r, nil
}

// Nodes are the members of the cluster by name, with whether they are online.
func (c *Client) Nodes(ctx context.Context) (map[string]bool, error) {
	var items []struct{ Node, Status text }
	if err := c.do(ctx, call{method: http.MethodGet, path: "/nodes"}, &items); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, i := range items {
		out[string(i.Node)] = i.Status == "online"
	}
	return out, nil
}

// Permissions are the privileges that the token has on one path, such as "/vms/100".
func (c *Client) Permissions(ctx context.Context, path string) (map[string]bool, error) {
	var paths map[string]map[string]flag
	k := call{method: http.MethodGet, path: "/access/permissions", query: url.Values{"path": {path}}}
	if err := c.do(ctx, k, &paths); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for name := range paths[path] {
		out[name] = true // the value says whether it is inherited further down
	}
	return out, nil
}

// Bridges are the names of what a VM's network card may be attached to on a node.
func (c *Client) Bridges(ctx context.Context, node string) ([]string, error) {
	var items []struct{ Iface text }
	k := call{method: http.MethodGet, path: path("nodes", node, "network"), query: url.Values{"type": {"any_bridge"}}}
	if err := c.do(ctx, k, &items); err != nil {
		return nil, err
	}
	var out []string
	for _, i := range items {
		out = append(out, string(i.Iface))
	}
	return out, nil
}

// Tags takes a list of tags apart; PVE separates them by semicolons, and accepts commas and
// spaces.
func Tags(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
}
