package gcp

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// zonesAge is how long a region's list of zones is believed.
const zonesAge = time.Hour

// isRegion tells "europe-west1" from "europe-west1-b".
func isRegion(place string) bool { return strings.Count(place, "-") == 1 }

// region reads a region: its quotas and its zones.
func (b *Backend) region(ctx context.Context, name string, age time.Duration) (*computepb.Region, error) {
	return b.regions.get(ctx, name, age, func(ctx context.Context) (*computepb.Region, error) {
		r, err := b.api.regions.Get(ctx, &computepb.GetRegionRequest{Project: b.conf.Project, Region: name})
		return r, classify("read region", heard(ctx, err), "region %s of project %s cannot be read", name, b.conf.Project)
	})
}

// allowed are the zones of this host in the order of preference. Those of a region begin at one
// that follows from the uid, so that proxies spread over them.
func (b *Backend) allowed(ctx context.Context, uid string) ([]string, error) {
	var out []string
	for _, place := range b.conf.Zones {
		if !isRegion(place) {
			out = append(out, place)
			continue
		}
		r, err := b.region(ctx, place, zonesAge)
		if err != nil {
			return nil, err
		}
		zones := make([]string, 0, len(r.GetZones()))
		for _, link := range r.GetZones() {
			zones = append(zones, zoneOf(link))
		}
		slices.Sort(zones)
		if len(zones) > 0 {
			h := fnv.New32a()
			_, _ = h.Write([]byte(uid))
			first := int(h.Sum32() % uint32(len(zones)))
			out = append(out, zones[first:]...)
			out = append(out, zones[:first]...)
		}
	}
	return distinct(out), nil
}

func distinct(in []string) (out []string) {
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// choose are the allowed zones that a request asks for, in the order in which it does.
func choose(allowed, asked []string) []string {
	if len(asked) == 0 {
		return allowed
	}
	var out []string
	for _, place := range asked {
		for _, z := range allowed {
			if z == place || isRegion(place) && regionOf(z) == place {
				out = append(out, z)
			}
		}
	}
	return distinct(out)
}

// room are the zones that a job may be made in, best first, whose regions have the quota for it.
// Zones that do not answer are left out. Without any it is ErrNoCapacity, or ErrPermanent if the
// request names none of this host's.
func (b *Backend) room(ctx context.Context, j *job, dark []string) ([]string, error) {
	allowed, err := b.allowed(ctx, j.UID)
	if err != nil {
		return nil, err
	}
	zones := choose(allowed, j.Zones)
	if len(zones) == 0 {
		return nil, backends.Errorf(backends.ErrPermanent, "choose zone", "proxy %s: none of %s is this host's; its zones are %s",
			j.Proxy, strings.Join(j.Zones, ", "), strings.Join(allowed, ", "))
	}
	answer := slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return slices.Contains(dark, z) })
	if len(answer) == 0 {
		return nil, backends.Errorf(backends.ErrTransient, "choose zone", "proxy %s: %s: none of these zones answers; nothing was made", j.Proxy, strings.Join(zones, ", "))
	}
	lacks, err := b.headroom(ctx, j, answer)
	if err != nil {
		return nil, err
	}
	var out, why []string
	for _, z := range answer {
		if lack := lacks[regionOf(z)]; lack != "" {
			why = append(why, regionOf(z)+" lacks "+lack)
			continue
		}
		out = append(out, z)
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, backends.Errorf(backends.ErrNoCapacity, "choose zone", "proxy %s: no room: %s; nothing was made", j.Proxy, strings.Join(distinct(why), "; "))
}

// elsewhere reports an error that another zone may not have, and where to go from zone: the zones
// that Google says have room come first, and after a quota those of the same region are out.
func elsewhere(err error, zone string, zones []string) ([]string, bool) {
	switch troubleOf(err) {
	case stockOut:
		var failed *failure
		if errors.As(err, &failed) {
			hinted := failed.room()
			slices.SortStableFunc(zones, func(x, y string) int {
				return rank(hinted, x) - rank(hinted, y)
			})
		}
		return zones, true
	case quota, subnetFull:
		return slices.DeleteFunc(zones, func(z string) bool { return regionOf(z) == regionOf(zone) }), true
	case invalid, absent:
		// Not every zone has every machine type.
		return zones, lacksMachineType(err)
	}
	return zones, false
}

func rank(hinted []string, zone string) int {
	if slices.Contains(hinted, zone) {
		return 0
	}
	return 1
}

// lacksMachineType reports the refusal of a zone that does not have a machine type at all.
func lacksMachineType(err error) bool {
	var answer *refusal
	return errors.As(err, &answer) && (strings.Contains(answer.Text, "'resource.machineType'") || strings.Contains(answer.Text, "/machineTypes/"))
}
