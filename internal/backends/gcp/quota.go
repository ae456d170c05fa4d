package gcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// Names of quotas. https://cloud.google.com/compute/resource-usage
const (
	quotaCPUs        = "CPUS"
	quotaSpotCPUs    = "PREEMPTIBLE_CPUS"
	quotaAllCPUs     = "CPUS_ALL_REGIONS"
	quotaInstances   = "INSTANCES"
	quotaInUse       = "IN_USE_ADDRESSES"
	quotaStatic      = "STATIC_ADDRESSES"
	quotaDisk        = "DISKS_TOTAL_GB"
	quotaSSD         = "SSD_TOTAL_GB"
	quotaFirewalls   = "FIREWALLS"
	familyCPUsSuffix = "_CPUS"
)

// need is what one proxy takes, by the name of the quota.
type need struct {
	region  map[string]float64
	project map[string]float64
}

// needOf is what a job takes, given its machine type's processors and disk. A quota that a region
// does not have is not counted there.
func (b *Backend) needOf(j *job, cpus int) need {
	n := need{region: map[string]float64{quotaInstances: 1}, project: map[string]float64{quotaAllCPUs: float64(cpus)}}
	n.region[cpuQuota(j.shape.Name)] = float64(cpus)
	if j.shape.Spot {
		n.region[quotaSpotCPUs] = float64(cpus)
	}
	if metric := diskQuota(b.conf.DiskType); metric != "" {
		n.region[metric] = float64(j.DiskGiB)
	}
	if j.external {
		n.region[quotaInUse] = 1
		if b.conf.ReservedAddress {
			n.region[quotaStatic] = 1
		}
	}
	if b.networkProject() == b.conf.Project {
		n.project[quotaFirewalls] = float64(len(b.rules(j)))
	}
	return n
}

// cpuQuota is the quota that a machine type's processors count for: the first generations share
// one, later families have their own.
func cpuQuota(machineType string) string {
	family, _, _ := strings.Cut(machineType, "-")
	switch family {
	case "e2", "n1", "f1", "g1", "custom":
		return quotaCPUs
	}
	return strings.ToUpper(family) + familyCPUsSuffix
}

// diskQuota is the one that a disk type counts for; empty for those that have finer ones.
func diskQuota(diskType string) string {
	switch diskType {
	case "pd-standard":
		return quotaDisk
	case "pd-ssd", "pd-balanced":
		return quotaSSD
	}
	return ""
}

// quotas are what an API object lists, by name.
func quotasOf(list []*computepb.Quota) map[string]*computepb.Quota {
	out := map[string]*computepb.Quota{}
	for _, q := range list {
		out[q.GetMetric()] = q
	}
	return out
}

func left(q *computepb.Quota) float64 { return max(q.GetLimit()-q.GetUsage(), 0) }

// countedAs are the wanted amounts that a region counts: processors of spot instances in their own
// quota where the project has one, and else in the ordinary.
func countedAs(want map[string]float64, have map[string]*computepb.Quota) map[string]float64 {
	out := map[string]float64{}
	_, spot := want[quotaSpotCPUs]
	apart := have[quotaSpotCPUs].GetLimit() > 0
	for metric, n := range want {
		cpus := metric == quotaCPUs || strings.HasSuffix(metric, familyCPUsSuffix)
		if cpus && spot && apart != (metric == quotaSpotCPUs) {
			continue
		}
		if have[metric] != nil && n > 0 {
			out[metric] = n
		}
	}
	return out
}

// lacking says which quotas do not suffice, empty if all do.
func lacking(want map[string]float64, have map[string]*computepb.Quota) string {
	var out []string
	for _, metric := range sorted(countedAs(want, have)) {
		if q := have[metric]; want[metric] > left(q) {
			out = append(out, fmt.Sprintf("%s (%.0f wanted, %.0f of %.0f left)", metric, want[metric], left(q), q.GetLimit()))
		}
	}
	return strings.Join(out, ", ")
}

// headroom says what each region of zones lacks for a job; nothing for those that have it all. Both
// are asked for now, since quotas are what changes most.
func (b *Backend) headroom(ctx context.Context, j *job, zones []string) (map[string]string, error) {
	shape, err := b.shape(ctx, zones, j.shape)
	if err != nil {
		return nil, err
	}
	n := b.needOf(j, shape.VCPUs)
	p, err := b.project(ctx)
	if err != nil {
		return nil, err
	}
	lacks := map[string]string{}
	everywhere := lacking(n.project, quotasOf(p.GetQuotas()))
	for _, z := range zones {
		name := regionOf(z)
		if _, done := lacks[name]; done {
			continue
		}
		if lacks[name] = everywhere; everywhere != "" {
			continue
		}
		r, err := b.region(ctx, name, time.Duration(0))
		if err != nil {
			return nil, err
		}
		lacks[name] = lacking(n.region, quotasOf(r.GetQuotas()))
	}
	return lacks, nil
}

func (b *Backend) project(ctx context.Context) (*computepb.Project, error) {
	p, err := b.api.projects.Get(ctx, &computepb.GetProjectRequest{Project: b.conf.Project})
	return p, classify("read project", heard(ctx, err), "project %s cannot be read", b.conf.Project)
}
