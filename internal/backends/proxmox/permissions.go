package proxmox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"proxyfleet/internal/backends"
)

// privilege is one that the token needs on a path. Any one of names will do.
type privilege struct {
	path  string
	names []string
	why   string
}

// privileges are what the token needs, right for a major version: PVE 9 has taken
// VM.Monitor apart and gives a guest agent's reads a privilege of their own. Both want
// SDN.Use on a bridge.
//
// Source: the permissions of each call in PVE's API schema, and what its answers name.
func (b *Backend) privileges(major int, templates []int, storages []string) []privilege {
	all := func(path, why string, names ...string) []privilege {
		out := make([]privilege, 0, len(names))
		for _, n := range names {
			out = append(out, privilege{path, []string{n}, why})
		}
		return out
	}
	vms := fmt.Sprintf("/vms/%d", b.conf.VMIDRange.Min) // stands for all of the range
	agent := privilege{vms, []string{"VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"}, "to read a guest's address"}
	if major < 9 {
		agent.names = []string{"VM.Monitor"}
	}
	out := slices.Concat(
		all(vms, "to make and remove VMs", "VM.Allocate", "VM.Audit"),
		all(vms, "to configure VMs", "VM.Config.CPU", "VM.Config.Memory", "VM.Config.Options", "VM.Config.Network", "VM.Config.CDROM", "VM.Config.Disk"),
		all(vms, "to start and stop VMs", "VM.PowerMgmt"),
		[]privilege{agent},
		all("/storage/"+b.conf.SeedStorage, "to store seeds", "Datastore.Audit", "Datastore.AllocateTemplate"),
		all("/storage/"+b.conf.SeedStorage, "to remove seeds", "Datastore.Allocate"),
	)
	for _, id := range templates {
		out = append(out, all(fmt.Sprintf("/vms/%d", id), "to clone the template", "VM.Clone", "VM.Audit")...)
	}
	for _, s := range storages {
		out = append(out, all("/storage/"+s, "to make disks", "Datastore.AllocateSpace")...)
		out = append(out, privilege{"/storage/" + s, []string{"Datastore.Audit", "Datastore.AllocateSpace"}, "to see its space"})
	}
	if n := b.conf.Network; n.Bridge != "" {
		path := "/sdn/zones/localnetwork/" + n.Bridge
		if n.VLAN != 0 {
			path += fmt.Sprintf("/%d", n.VLAN)
		}
		out = append(out, all(path, "to use the bridge", "SDN.Use")...)
	}
	return out
}

// checkPermissions asks what the token may do, and names what it lacks.
func (b *Backend) checkPermissions(ctx context.Context, major int, snap *snapshot) backends.TargetHealth {
	h := backends.TargetHealth{Target: "permissions", Code: backends.CheckOK}
	var templates []int
	storages := map[string]bool{}
	if b.conf.Storage != "" {
		storages[b.conf.Storage] = true
	}
	for _, image := range b.host.Images {
		for _, vm := range named(snap, image.Template) {
			templates = append(templates, vm.ID)
			if t, err := b.template(ctx, vm); err == nil && b.conf.Storage == "" {
				storages[t.storage] = true
			}
		}
	}
	slices.Sort(templates)
	needed := b.privileges(major, slices.Compact(templates), sortedKeys(storages))
	members, err := b.api.Nodes(ctx) // shows those as well that the token may not audit
	if err != nil {
		return unwell(h.Target, err, "the cluster's nodes cannot be listed")
	}
	for name := range members {
		if b.allowed(name) {
			needed = append(needed, privilege{"/nodes/" + name, []string{"Sys.Audit"}, "to see its memory"})
		}
	}
	have := map[string]map[string]bool{}
	var lacks []string
	for _, p := range needed {
		if have[p.path] == nil {
			granted, err := b.api.Permissions(ctx, p.path)
			if err != nil {
				return unwell(h.Target, err, "the token's permissions cannot be read")
			}
			have[p.path] = granted
		}
		if !slices.ContainsFunc(p.names, func(n string) bool { return have[p.path][n] }) {
			lacks = append(lacks, fmt.Sprintf("%s on %s %s", strings.Join(p.names, " or "), p.path, p.why))
		}
	}
	if len(lacks) > 0 {
		slices.Sort(lacks)
		h.Code = backends.CheckForbidden
		h.Message = "the token lacks " + strings.Join(slices.Compact(lacks), "; ") + "; grant it with `pveum acl modify`"
		if id, err := b.api.TokenID(); err == nil {
			h.Details = map[string]string{"token": id, "missing": fmt.Sprint(len(slices.Compact(lacks)))}
		}
	}
	return h
}

func sortedKeys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
