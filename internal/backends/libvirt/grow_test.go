package libvirt

import (
	"testing"

	"proxyfleet/internal/backends"
)

func TestOnlyAShapeThatIsKnownToDifferIsChanged(t *testing.T) {
	r := resolved{Request: backends.Request{Ref: backends.Ref{UID: testUID}, MachineType: "small", DiskGiB: 10}, shape: backends.MachineType{VCPUs: 1, MemoryMiB: 512}}
	m := newMarker(backends.Owner{}, r, 3128, testBlueprint().mark.CreatedAt)
	large := r
	large.MachineType, large.shape = "large", backends.MachineType{VCPUs: 4, MemoryMiB: 4096}
	bigger, smaller := r, r
	bigger.DiskGiB, smaller.DiskGiB = 20, 5
	edited := r
	edited.shape.MemoryMiB = 1024 // the host's entry, not the intent
	old := m
	old.Fields = nil
	for what, c := range map[string]struct {
		m       marker
		r       resolved
		changed bool
		want    requirement
		refused string
	}{
		"the same":                        {m, r, false, requirement{1, 512, 10 << 30}, ""},
		"another machine type":            {m, large, true, requirement{4, 4096, 10 << 30}, ""},
		"a larger disk":                   {m, bigger, true, requirement{1, 512, 20 << 30}, ""},
		"a smaller disk":                  {m, smaller, true, requirement{1, 512, 5 << 30}, "diskGiB"},
		"the host's entry was edited":     {m, edited, false, requirement{1, 512, 10 << 30}, ""},
		"a marker that does not say what": {old, large, false, requirement{1, 512, 10 << 30}, ""},
	} {
		next, changed := c.m.reshaped(c.r)
		if got := (requirement{next.VCPUs, next.MemoryMiB, next.DiskBytes}); changed != c.changed || got != c.want {
			t.Errorf("%s: got %+v, changed %v", what, got, changed)
		}
		if got := c.m.changed(c.r); got != c.refused {
			t.Errorf("%s: refused for %q, want %q", what, got, c.refused)
		}
	}
}
