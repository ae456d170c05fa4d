package gcpfake

import "strings"

// quotaMetrics are the quotas that are counted, with their names in Cloud Quotas.
// https://cloud.google.com/compute/resource-usage
var quotaMetrics = map[string]string{
	"CPUS":             "compute.googleapis.com/cpus",
	"PREEMPTIBLE_CPUS": "compute.googleapis.com/preemptible_cpus",
	"CPUS_ALL_REGIONS": "compute.googleapis.com/cpus_all_regions",
	"INSTANCES":        "compute.googleapis.com/instances",
	"IN_USE_ADDRESSES": "compute.googleapis.com/in_use_addresses",
	"STATIC_ADDRESSES": "compute.googleapis.com/static_addresses",
	"DISKS_TOTAL_GB":   "compute.googleapis.com/disks_total_storage",
	"SSD_TOTAL_GB":     "compute.googleapis.com/ssd_total_storage",
	"FIREWALLS":        "compute.googleapis.com/firewalls",
}

// The limits of a fresh project with some history.
var (
	regionQuotas  = map[string]float64{"CPUS": 24, "PREEMPTIBLE_CPUS": 0, "INSTANCES": 24, "IN_USE_ADDRESSES": 8, "STATIC_ADDRESSES": 8, "DISKS_TOTAL_GB": 4096, "SSD_TOTAL_GB": 500}
	projectQuotas = map[string]float64{"CPUS_ALL_REGIONS": 32, "FIREWALLS": 100}
)

func limitName(metric, region string) string {
	if region == "" {
		return metric + "-per-project"
	}
	return metric + "-per-project-region"
}

// SetQuota changes a limit of a region, or with an empty region of the whole project:
// CPUS, PREEMPTIBLE_CPUS, INSTANCES, IN_USE_ADDRESSES, STATIC_ADDRESSES, DISKS_TOTAL_GB,
// SSD_TOTAL_GB; CPUS_ALL_REGIONS and FIREWALLS.
func (s *Server) SetQuota(region, metric string, limit float64) {
	s.locked(func() {
		defaults := regionQuotas
		if region == "" {
			defaults = projectQuotas
		}
		if _, ok := defaults[metric]; !ok {
			s.t.Errorf("gcpfake: no quota %s in %q is counted", metric, region)
		}
		if s.quotas[region] == nil {
			s.quotas[region] = map[string]float64{}
		}
		s.quotas[region][metric] = limit
	})
}

func (s *Server) limitOf(region, metric string) float64 {
	if limit, ok := s.quotas[region][metric]; ok {
		return limit
	}
	if region == "" {
		return projectQuotas[metric]
	}
	return regionQuotas[metric]
}

// usage counts what a project uses in a region, or with an empty region everywhere.
func (s *Server) usage(project, region string) map[string]float64 {
	u := map[string]float64{}
	for _, r := range s.resources {
		if r.pending || strings.Split(r.key, "/")[1] != project || region != "" && regionOfScope(scopeOf(r.key)) != region {
			continue
		}
		switch r.collection {
		case "instances":
			u["INSTANCES"]++
			// A machine that is off takes neither processors nor addresses.
			if status := text(r.doc, "status"); status != "TERMINATED" && status != "SUSPENDED" {
				s.addRunning(u, r.doc, region)
			}
		case "disks":
			u[diskMetric(r.doc)] += float64(diskSize(r.doc))
		case "addresses":
			if text(r.doc, "addressType") == "EXTERNAL" {
				u["STATIC_ADDRESSES"]++
			}
		case "firewalls":
			u["FIREWALLS"]++
		}
	}
	return u
}

// addRunning counts what a machine takes while it runs.
func (s *Server) addRunning(u map[string]float64, instance object, region string) {
	cpus := s.cpus(instance)
	u["CPUS_ALL_REGIONS"] += cpus
	u[s.cpuMetric(instance, region)] += cpus
	u["IN_USE_ADDRESSES"] += float64(len(externalConfigs(instance)))
}

// cpuMetric is which quota a machine's processors count for: a project without a quota for
// preemptible ones uses the ordinary one.
// https://cloud.google.com/compute/resource-usage#preemptible-quotas
func (s *Server) cpuMetric(instance object, region string) string {
	if isSpot(instance) && s.limitOf(region, "PREEMPTIBLE_CPUS") > 0 {
		return "PREEMPTIBLE_CPUS"
	}
	return "CPUS"
}

func (s *Server) cpus(instance object) float64 {
	key := strings.TrimPrefix(text(instance, "machineType"), selfBase)
	if m := s.resources[key]; m != nil {
		return float64(m.doc["guestCpus"].(int))
	}
	return 0
}

func diskMetric(disk object) string {
	if lastPart(text(disk, "type")) == "pd-standard" {
		return "DISKS_TOTAL_GB"
	}
	return "SSD_TOTAL_GB"
}

func regionOfScope(scope string) string {
	kind, name, _ := strings.Cut(scope, "/")
	switch kind {
	case "zones":
		return regionOf(name)
	case "regions":
		return name
	}
	return ""
}

// overQuota says which quota more would break, nil where there is room.
func (s *Server) overQuota(project, region string, more map[string]float64) *OperationError {
	for _, where := range []string{region, ""} {
		used := s.usage(project, where)
		for _, metric := range sortedKeys(more) {
			defaults := regionQuotas
			if where == "" {
				defaults = projectQuotas
			}
			if _, counted := defaults[metric]; !counted || more[metric] == 0 {
				continue
			}
			if limit := s.limitOf(where, metric); used[metric]+more[metric] > limit {
				return QuotaExceeded(metric, where, limit)
			}
		}
	}
	return nil
}

// refused is the same as the answer to a request, for what is counted before it is accepted.
func (e *OperationError) refused() error {
	if e == nil {
		return nil
	}
	return &Error{Code: 403, Reason: "quotaExceeded", Domain: "usageLimits", Message: e.Message}
}

// quotasOf are the limits with what is used, as a region or a project shows them.
func (s *Server) quotasOf(project, region string) []any {
	metrics, used := regionQuotas, s.usage(project, region)
	if region == "" {
		metrics = projectQuotas
	}
	var out []any
	for _, m := range sortedKeys(metrics) {
		out = append(out, object{"metric": m, "limit": s.limitOf(region, m), "usage": used[m]})
	}
	return out
}

func getProject(c *call) (object, error) {
	return object{"kind": "compute#project", "name": c.project, "id": projectNumber, "selfLink": selfBase + "projects/" + c.project,
		"defaultServiceAccount": projectNumber + "-compute@developer.gserviceaccount.com", "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
		"defaultNetworkTier": "PREMIUM", "quotas": c.s.quotasOf(c.project, ""), "commonInstanceMetadata": object{"kind": "compute#metadata"}}, nil
}

func getRegion(c *call) (object, error) {
	r := c.s.resources["projects/"+c.project+"/regions/"+c.vars["region"]]
	if r == nil {
		return nil, notFound("projects/" + c.project + "/regions/" + c.vars["region"])
	}
	return c.withQuotas(r).doc, nil
}

func (c *call) withQuotas(r *resource) *resource {
	doc := clone(r.doc)
	doc["quotas"] = c.s.quotasOf(c.project, r.name)
	return &resource{key: r.key, collection: r.collection, name: r.name, doc: doc}
}
