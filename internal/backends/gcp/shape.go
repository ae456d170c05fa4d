package gcp

import (
	"context"
	"maps"
	"slices"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// shapeAge is how long a machine type is believed to have the processors that it has.
const shapeAge = 24 * time.Hour

// shape is a machine type with its processors and memory: the configuration's, or what Google says
// where that leaves them open. A zone that does not have it leaves it as it is.
func (b *Backend) shape(ctx context.Context, zone string, m backends.MachineType) (backends.MachineType, error) {
	if m.VCPUs > 0 && m.MemoryMiB > 0 {
		return m, nil
	}
	t, err := b.shapes.get(ctx, zone+"/"+m.Name, shapeAge, func(ctx context.Context) (*computepb.MachineType, error) {
		t, err := b.api.machineTypes.Get(ctx, &computepb.GetMachineTypeRequest{Project: b.conf.Project, Zone: zone, MachineType: m.Name})
		return t, heard(ctx, err)
	})
	if isAbsent(err) {
		return m, nil
	}
	if err != nil {
		return m, classify("read machine type", err, "machine type %s in zone %s cannot be read", m.Name, zone)
	}
	m.VCPUs, m.MemoryMiB = int(t.GetGuestCpus()), int(t.GetMemoryMb())
	return m, nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
