package gcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/cloudresourcemanager/v3"

	"proxyfleet/internal/backends"
)

// Check implements [backends.Backend]. While the project cannot be read, that is the only target.
func (b *Backend) Check(ctx context.Context) []backends.TargetHealth {
	p, err := b.project(ctx)
	if err != nil {
		return append([]backends.TargetHealth{unwell("project/"+b.conf.Project, err)}, b.checkPermissions(ctx)...)
	}
	out := append([]backends.TargetHealth{b.checkProject(p)}, b.checkPermissions(ctx)...)
	zones, err := b.allowed(ctx, "")
	if err != nil {
		return append(out, unwell("zones", err))
	}
	out = append(out, b.checkZones(ctx, zones)...)
	var regions []string
	for _, z := range zones {
		regions = append(regions, regionOf(z))
	}
	for _, r := range distinct(regions) {
		out = append(out, b.checkQuota(ctx, r), b.checkNetwork(ctx, r))
	}
	for _, key := range sorted(b.host.Images) {
		out = append(out, b.checkImage(ctx, key))
	}
	return out
}

// unwell is a target about which err was met.
func unwell(target string, err error) backends.TargetHealth {
	return backends.TargetHealth{Target: target, Code: code(err), Message: err.Error()}
}

func (b *Backend) checkProject(p *computepb.Project) backends.TargetHealth {
	have := quotasOf(p.GetQuotas())
	return b.quotaHealth("project/"+b.conf.Project, have, quotaAllCPUs, quotaFirewalls)
}

// checkQuota tells what is left in a region of what every proxy takes.
func (b *Backend) checkQuota(ctx context.Context, region string) backends.TargetHealth {
	r, err := b.region(ctx, region, 0)
	if err != nil {
		return unwell("quota/"+region, err)
	}
	metrics := []string{quotaCPUs, quotaInUse, quotaInstances, diskQuota(b.conf.DiskType)}
	for _, m := range b.host.MachineTypes {
		metrics = append(metrics, cpuQuota(m.Name))
		if m.Spot {
			metrics = append(metrics, quotaSpotCPUs)
		}
	}
	if b.conf.ReservedAddress {
		metrics = append(metrics, quotaStatic)
	}
	return b.quotaHealth("quota/"+region, quotasOf(r.GetQuotas()), metrics...)
}

// quotaHealth has a detail for each metric: what is left, of what.
func (b *Backend) quotaHealth(target string, have map[string]*computepb.Quota, metrics ...string) backends.TargetHealth {
	h := backends.TargetHealth{Target: target, Code: backends.CheckOK, Details: map[string]string{}}
	slices.Sort(metrics)
	var out []string
	for _, metric := range slices.Compact(metrics) {
		q := have[metric]
		if q == nil || q.GetLimit() == 0 && metric == quotaSpotCPUs { // spot ones count for the ordinary quota then
			continue
		}
		h.Details[metric] = fmt.Sprintf("%.0f of %.0f left", left(q), q.GetLimit())
		if left(q) < 1 {
			out = append(out, metric)
		}
	}
	if len(out) > 0 {
		h.Code = backends.CheckQuotaExhausted
		h.Message = "nothing is left of " + strings.Join(out, ", ") + ": no more proxies can be made here; raise it or free some"
	}
	return h
}

// checkZones looks whether each zone is there and up, and has the machine types.
func (b *Backend) checkZones(ctx context.Context, zones []string) []backends.TargetHealth {
	var out []backends.TargetHealth
	for _, name := range zones {
		h := backends.TargetHealth{Target: "zone/" + name, Code: backends.CheckOK}
		z, err := b.api.zones.Get(ctx, &computepb.GetZoneRequest{Project: b.conf.Project, Zone: name})
		switch err = heard(ctx, err); {
		case isAbsent(err):
			h.Code, h.Message = backends.CheckZoneNotFound, "there is no such zone; see backend.zones"
		case err != nil:
			h = unwell(h.Target, err)
		case z.GetStatus() != "UP":
			h.Code, h.Message = backends.CheckUnreachable, "Google says that the zone is "+z.GetStatus()
		default:
			h = b.checkMachineTypes(ctx, h, name)
		}
		out = append(out, h)
	}
	return out
}

func (b *Backend) checkMachineTypes(ctx context.Context, h backends.TargetHealth, zone string) backends.TargetHealth {
	var lacks []string
	for _, key := range sorted(b.host.MachineTypes) {
		s, err := b.shape(ctx, []string{zone}, backends.MachineType{Name: b.host.MachineTypes[key].Name})
		if err != nil {
			return unwell(h.Target, err)
		}
		if s.VCPUs == 0 {
			lacks = append(lacks, s.Name)
		}
	}
	if lacks = distinct(lacks); len(lacks) > 0 {
		h.Message = "it does not have " + strings.Join(lacks, ", ") + "; proxies of these machine types go to other zones"
	}
	return h
}

func (b *Backend) checkNetwork(ctx context.Context, region string) backends.TargetHealth {
	h := backends.TargetHealth{Target: "network/" + region, Code: backends.CheckOK}
	path := b.subnetPath(region)
	parts := strings.Split(path, "/") // projects/p/regions/r/subnetworks/s
	s, err := b.api.subnetworks.Get(ctx, &computepb.GetSubnetworkRequest{Project: parts[1], Region: parts[3], Subnetwork: parts[5]})
	switch err = heard(ctx, err); {
	case isAbsent(err):
		h.Code, h.Message = backends.CheckNetworkNotFound, "there is no "+path+"; see backend.network and backend.subnetwork"
	case err != nil:
		h = unwell(h.Target, err)
	case b.conf.IPv6 && s.GetStackType() != "IPV4_IPV6":
		h.Code, h.Message = backends.CheckNetworkNotActive, "backend.ipv6 is on, and "+path+" is not dual-stack"
	}
	return h
}

func (b *Backend) checkImage(ctx context.Context, key string) backends.TargetHealth {
	h := backends.TargetHealth{Target: "image/" + key, Code: backends.CheckOK}
	image := b.host.Images[key]
	if image.Family == "" {
		h.Code, h.Message = backends.CheckImageNotFound, "it names no family; on Compute Engine it must"
		return h
	}
	path := b.imagePath(image)
	parts := strings.Split(path, "/") // projects/p/global/images/i or projects/p/global/images/family/f
	var got *computepb.Image
	var err error
	if len(parts) == 6 {
		got, err = b.api.images.GetFromFamily(ctx, &computepb.GetFromFamilyImageRequest{Project: parts[1], Family: parts[5]})
	} else {
		got, err = b.api.images.Get(ctx, &computepb.GetImageRequest{Project: parts[1], Image: parts[4]})
	}
	switch err = heard(ctx, err); {
	case isAbsent(err):
		h.Code, h.Message = backends.CheckImageNotFound, "there is no "+path
	case err != nil:
		h = unwell(h.Target, err)
	default:
		h.Details = map[string]string{"image": got.GetName(), "diskGiB": strconv.FormatInt(got.GetDiskSizeGb(), 10)}
		if state := got.GetDeprecated().GetState(); state != "" {
			h.Message = "the image is " + strings.ToLower(state)
		}
	}
	return h
}

// checkPermissions names the permissions that the agent lacks on its project, and on that of a
// shared network.
func (b *Backend) checkPermissions(ctx context.Context) []backends.TargetHealth {
	var out []backends.TargetHealth
	want := b.permissions()
	for _, project := range sorted(want) {
		h := backends.TargetHealth{Target: "permissions", Code: backends.CheckOK}
		if project != b.conf.Project {
			h.Target += "/" + project
		}
		out = append(out, b.askPermissions(ctx, h, project, want[project]))
	}
	return out
}

func (b *Backend) askPermissions(ctx context.Context, h backends.TargetHealth, project string, want []string) backends.TargetHealth {
	// The API takes a hundred at once, which is more than there are.
	got, err := b.api.manager.Projects.TestIamPermissions("projects/"+project, &cloudresourcemanager.TestIamPermissionsRequest{Permissions: want}).Context(ctx).Do()
	if err = heard(ctx, err); err != nil {
		h = unwell(h.Target, err)
		h.Message = "which permissions the agent has cannot be asked; is the Cloud Resource Manager API on? " + h.Message
		return h
	}
	missing := slices.DeleteFunc(want, func(p string) bool { return slices.Contains(got.Permissions, p) })
	if len(missing) > 0 {
		h.Code = backends.CheckForbidden
		h.Message = "the agent lacks " + strings.Join(missing, ", ") + " on project " + project + "; on a single resource it may have them all the same"
		h.Details = map[string]string{"missing": strings.Join(missing, " ")}
	}
	return h
}
