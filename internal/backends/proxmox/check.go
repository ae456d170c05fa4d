package proxmox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"proxyfleet/internal/backends"
)

// leastSeedSpace is below what some hundred seeds take.
const leastSeedSpace = 64 * mib

// Check implements [backends.Backend]. While the API does not answer, that is the only
// target.
func (b *Backend) Check(ctx context.Context) []backends.TargetHealth {
	version, err := b.api.Version(ctx)
	if err != nil {
		return []backends.TargetHealth{unwell("api", err, "the API does not answer as it should")}
	}
	api := backends.TargetHealth{Target: "api", Code: backends.CheckOK, Details: map[string]string{"version": version.Text}}
	if version.Major < 8 {
		api.Code, api.Message = backends.CheckAPIError, "Proxmox VE "+version.Text+" is older than 8, the oldest that is known to work"
	}
	out := []backends.TargetHealth{api}
	snap, err := b.inv.fresh(ctx)
	if err != nil {
		return append(out, unwell("cluster", err, "the cluster's resources cannot be listed"))
	}
	out = append(out, b.checkNodes(ctx, snap)...)
	out = append(out, b.checkStorages(ctx, snap)...)
	out = append(out, b.checkTemplates(ctx, snap)...)
	out = append(out, b.checkNetwork(ctx, snap)...)
	return append(out, b.checkPermissions(ctx, version.Major, snap))
}

// unwell is a target about which err was met.
func unwell(target string, err error, what string) backends.TargetHealth {
	_, hint := judge(err)
	message := what + ": " + err.Error()
	if hint != "" {
		message += "; " + hint
	}
	return backends.TargetHealth{Target: target, Code: code(err), Message: message}
}

// checkNodes holds the configured nodes against the cluster's own list, which needs no
// privilege.
func (b *Backend) checkNodes(ctx context.Context, snap *snapshot) []backends.TargetHealth {
	members, err := b.api.Nodes(ctx)
	if err != nil {
		return []backends.TargetHealth{unwell("nodes", err, "the cluster's nodes cannot be listed")}
	}
	names := b.conf.Nodes
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(members))
	}
	var out []backends.TargetHealth
	for _, name := range names {
		h := backends.TargetHealth{Target: "node/" + name, Code: backends.CheckOK}
		online, known := members[name]
		switch {
		case !known:
			h.Code = backends.CheckUnreachable
			h.Message = fmt.Sprintf("the cluster has no node %s; its nodes are %s", name, strings.Join(slices.Sorted(maps.Keys(members)), ", "))
		case !online:
			h.Code, h.Message = backends.CheckUnreachable, "the node is offline; what its VMs do is not known"
		default:
			n := snap.nodes[name]
			h.Details = map[string]string{"cpus": strconv.Itoa(n.CPUs), "memoryMiB": strconv.FormatInt(n.Memory/mib, 10),
				"memoryFreeMiB": strconv.FormatInt((n.Memory-n.MemoryIn)/mib, 10)}
		}
		out = append(out, h)
	}
	return out
}

// checkStorages looks at the seeds' storage, and at that of full clones, on every node.
func (b *Backend) checkStorages(ctx context.Context, snap *snapshot) []backends.TargetHealth {
	out := []backends.TargetHealth{b.checkStorage(ctx, snap, b.conf.SeedStorage, "iso", leastSeedSpace)}
	if b.conf.Storage != "" {
		out = append(out, b.checkStorage(ctx, snap, b.conf.Storage, "images", int64(max(b.host.Defaults.DiskGiB, 1))*gib))
	}
	return out
}

func (b *Backend) checkStorage(ctx context.Context, snap *snapshot, name, content string, least int64) backends.TargetHealth {
	h := backends.TargetHealth{Target: "storage/" + name, Code: backends.CheckOK, Details: map[string]string{}}
	bad := func(code, format string, args ...any) backends.TargetHealth {
		h.Code, h.Message = code, fmt.Sprintf(format, args...)
		return h
	}
	seen := false
	for _, n := range snap.Nodes {
		if !n.Online || !b.allowed(n.Name) {
			continue
		}
		s, err := b.api.StorageStatus(ctx, n.Name, name)
		if err != nil {
			return unwell(h.Target, err, "its status on node "+n.Name+" cannot be read")
		}
		seen = true
		h.Details[n.Name+".freeMiB"] = strconv.FormatInt(s.Free/mib, 10)
		switch {
		case !s.Enabled:
			return bad(backends.CheckStorageNotFound, "it is disabled")
		case !s.Active:
			return bad(backends.CheckStorageNotFound, "it is not active on node %s; is it mounted?", n.Name)
		case !slices.Contains(s.Content, content):
			return bad(backends.CheckStorageNotFound, "it does not take content %q, only %s", content, strings.Join(s.Content, ", "))
		case s.Free < least:
			return bad(backends.CheckLowSpace, "%d MiB are left on node %s", s.Free/mib, n.Name)
		case content == "iso" && !s.Shared:
			h.Message = "it is not shared: a seed in its drive keeps a VM from migrating"
		}
	}
	if !seen {
		return bad(backends.CheckUnreachable, "none of the configured nodes is online")
	}
	return h
}

// checkTemplates looks for a template that serves, of each image.
func (b *Backend) checkTemplates(ctx context.Context, snap *snapshot) []backends.TargetHealth {
	var out []backends.TargetHealth
	for _, key := range slices.Sorted(maps.Keys(b.host.Images)) {
		h := backends.TargetHealth{Target: "template/" + key, Code: backends.CheckOK}
		if b.host.Images[key].Template == "" {
			h.Code, h.Message = backends.CheckTemplateNotFound, "the image names no template; on Proxmox VE it must"
			out = append(out, h)
			continue
		}
		templates, err := b.templates(ctx, snap, key)
		if err != nil {
			if h.Code, h.Message = code(err), err.Error(); backends.Class(err) == backends.ErrPermanent {
				h.Code = backends.CheckTemplateNotFound
			}
			out = append(out, h)
			continue
		}
		if places, refused := b.rules().places(snap, templates); len(places) == 0 {
			h.Code, h.Message = backends.CheckTemplateNotFound, "it cannot be cloned anywhere: "+strings.Join(refused, "; ")
		} else {
			h.Details = map[string]string{"templates": ids(templates), "nodes": nodesOf(places)}
		}
		out = append(out, h)
	}
	return out
}

// checkNetwork looks for the bridge on each node.
func (b *Backend) checkNetwork(ctx context.Context, snap *snapshot) []backends.TargetHealth {
	bridge := b.conf.Network.Bridge
	if bridge == "" {
		return nil
	}
	h := backends.TargetHealth{Target: "network/" + bridge, Code: backends.CheckOK}
	for _, n := range snap.Nodes {
		if !n.Online || !b.allowed(n.Name) {
			continue
		}
		bridges, err := b.api.Bridges(ctx, n.Name)
		if err != nil {
			return []backends.TargetHealth{unwell(h.Target, err, "the bridges of node "+n.Name+" cannot be listed")}
		}
		// What the token may not see is not in the list; the permissions tell.
		if len(bridges) > 0 && !slices.Contains(bridges, bridge) {
			h.Code = backends.CheckNetworkNotFound
			h.Message = fmt.Sprintf("node %s has no bridge %s that the token may see, only %s", n.Name, bridge, strings.Join(bridges, ", "))
		}
	}
	return []backends.TargetHealth{h}
}

func ids(templates []template) string {
	out := make([]string, 0, len(templates))
	for _, t := range templates {
		out = append(out, strconv.Itoa(t.vm.ID))
	}
	return strings.Join(out, " ")
}

func nodesOf(places []place) string {
	nodes := map[string]bool{}
	for _, p := range places {
		nodes[p.node] = true
	}
	return strings.Join(sortedKeys(nodes), " ")
}
