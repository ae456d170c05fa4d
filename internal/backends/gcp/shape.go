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

// shape is a machine type with its processors and memory: the configuration's, or where that leaves
// them open what the first of zones says that answers and has it. Without any they stay 0.
func (b *Backend) shape(ctx context.Context, zones []string, m backends.MachineType) (backends.MachineType, error) {
	if m.VCPUs > 0 && m.MemoryMiB > 0 {
		return m, nil
	}
	var failed error
	for _, zone := range zones {
		t, err := b.shapes.get(ctx, zone+"/"+m.Name, shapeAge, func(ctx context.Context) (*computepb.MachineType, error) {
			t, err := b.api.machineTypes.Get(ctx, &computepb.GetMachineTypeRequest{Project: b.conf.Project, Zone: zone, MachineType: m.Name})
			return t, heard(ctx, err)
		})
		switch {
		case err == nil:
			m.VCPUs, m.MemoryMiB = int(t.GetGuestCpus()), int(t.GetMemoryMb())
			return m, nil
		case !isAbsent(err):
			failed = classify("read machine type", err, "machine type %s in zone %s cannot be read", m.Name, zone)
			if c := backends.Class(failed); c != backends.ErrTransient || ctx.Err() != nil {
				return m, failed
			}
		}
	}
	return m, failed
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
