package placement_test

import (
	"testing"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

func TestMembersOfAPoolSpreadOverZonesThenHosts(t *testing.T) {
	a, b, c := plainHost("a"), plainHost("b"), plainHost("c")
	a.Zone, b.Zone, c.Zone = "eu", "eu", "us"
	c.Bound.Slots = 10 // load comes after spread
	onHost, inZone := map[string]int{"b": 1}, map[string]int{"eu": 1}
	for i, name := range []string{"c", "a", "c", "a", "c", "b"} {
		h, _ := placement.Choose(hosts(a, b, c), &placement.Request{OnHost: onHost, InZone: inZone})
		if h.Name != name {
			t.Fatalf("member %d goes to %s, want %s", i+1, h.Name, name)
		}
		onHost[h.Name]++
		inZone[h.Zone]++
	}
}

func TestWhatIsPreferredComesBeforeSpread(t *testing.T) {
	a, b := vmHost("a"), vmHost("b")
	a.Labels = map[string]string{"disk": "fast"}
	req := &placement.Request{
		Spec:   bus.Spec{Placement: bus.Placement{Prefer: bus.Preference{Labels: map[string]string{"disk": "fast"}}}},
		OnHost: map[string]int{"a": 2}, InZone: map[string]int{"eu": 2},
	}
	if h, _ := placement.Choose(hosts(a, b), req); h != a {
		t.Errorf("got %s, want a", h.Name)
	}
}

func TestAPoolsBoundsKeepHostsOut(t *testing.T) {
	for name, c := range map[string]struct {
		req  placement.Request
		want string
	}{
		"no bound":                   {placement.Request{OnHost: map[string]int{"a": 9}, InZone: map[string]int{"eu": 9}}, ""},
		"below the bounds":           {placement.Request{OnHost: map[string]int{"a": 1}, MaxPerHost: 2, InZone: map[string]int{"eu": 2}, MaxPerZone: 3}, ""},
		"the host has as many":       {placement.Request{OnHost: map[string]int{"a": 2}, MaxPerHost: 2}, "has as many of its pool as a host may: 2"},
		"the zone has as many":       {placement.Request{InZone: map[string]int{"eu": 3}, MaxPerZone: 3}, "is in a zone that has as many of its pool as a zone may: 3"},
		"others' zones do not count": {placement.Request{InZone: map[string]int{"us": 3}, MaxPerZone: 3}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, why := placement.Fit(vmHost("a"), &c.req); why.String() != c.want {
				t.Errorf("got %q, want %q", why, c.want)
			}
		})
	}
}
