package placement_test

import (
	"strings"
	"testing"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

func vmHost(name string) *placement.Host {
	return &placement.Host{
		Name: name, Backend: "libvirt", Zone: "eu", Labels: map[string]string{"rack": "a"},
		Offer: bus.Offer{
			Images: []string{"debian"}, DefaultImage: "debian",
			MachineTypes:       []bus.MachineType{{Name: "small", VCPUs: 1, MemoryMiB: 1024}, {Name: "big", VCPUs: 4, MemoryMiB: 8192}},
			DefaultMachineType: "small", DefaultDiskGiB: 10,
			Capacity: bus.Capacity{VCPUs: 4, MemoryMiB: 8192, DiskGiB: 100, Slots: 3},
		},
	}
}

func plainHost(name string) *placement.Host {
	return &placement.Host{Name: name, Backend: "local", Offer: bus.Offer{Capacity: bus.Capacity{VCPUs: -1, MemoryMiB: -1, DiskGiB: -1, Slots: -1}}}
}

func hosts(hs ...*placement.Host) map[string]*placement.Host {
	out := map[string]*placement.Host{}
	for _, h := range hs {
		out[h.Name] = h
	}
	return out
}

func TestAHostIsLeftOutBecause(t *testing.T) {
	for name, c := range map[string]struct {
		host func(*placement.Host)
		req  placement.Request
		want string
	}{
		"it is of another backend":         {req: placement.Request{Spec: bus.Spec{Placement: bus.Placement{Backend: "gcp"}}}, want: "not of backend gcp"},
		"it is in another zone":            {req: placement.Request{Spec: bus.Spec{Placement: bus.Placement{Zone: "us"}}}, want: "not in zone us"},
		"a label has another value":        {req: placement.Request{Spec: bus.Spec{Placement: bus.Placement{Labels: map[string]string{"rack": "b"}}}}, want: "other labels"},
		"it has what the proxy keeps from": {req: placement.Request{Avoid: map[string]string{"a": "crawl-1"}}, want: "has what it keeps away from: crawl-1"},
		"it is closed":                     {host: func(h *placement.Host) { h.Closed = "silent" }, want: "silent"},
		"it refused this proxy":            {req: placement.Request{Refused: map[string]string{"a": "no"}}, want: "refused it: no"},
		"it has not the image":             {req: placement.Request{Spec: bus.Spec{Image: "alpine"}}, want: "does not offer image alpine"},
		"it takes no URL":                  {req: placement.Request{Spec: bus.Spec{Image: "https://x/y"}}, want: "takes no image URLs"},
		"it has no default image":          {host: func(h *placement.Host) { h.Offer.DefaultImage = "" }, want: "no default image"},
		"it has no default machine type":   {host: func(h *placement.Host) { h.Offer.DefaultMachineType = "" }, want: "no default machine type"},
		"it has not the machine type":      {req: placement.Request{Spec: bus.Spec{MachineType: "huge"}}, want: "does not offer machine type huge"},
		"its vCPUs are taken":              {host: func(h *placement.Host) { h.Bound.VCPUs = 4 }, want: "not enough left of vCPUs"},
		"its memory is taken":              {host: func(h *placement.Host) { h.Bound.MemoryMiB = 7169 }, want: "not enough left of memory"},
		"its disk is taken":                {req: placement.Request{Spec: bus.Spec{DiskGiB: 101}}, want: "not enough left of disk"},
		"its slots are taken":              {host: func(h *placement.Host) { h.Bound.Slots = 3 }, want: "not enough left of slots"},
		"it said that it is full for this one": {host: func(h *placement.Host) {
			h.Full = []placement.Full{{Shape: bus.Capacity{VCPUs: 1, MemoryMiB: 1024, DiskGiB: 10, Slots: 1}}}
		}, want: "no room for this shape"},
	} {
		t.Run(name, func(t *testing.T) {
			h := vmHost("a")
			if _, why := placement.Fit(h, &placement.Request{}); !why.Fits() {
				t.Fatalf("the host does not fit to begin with: %s", why)
			}
			if c.host != nil {
				c.host(h)
			}
			if got, _ := placement.Choose(hosts(h), &c.req); got != nil {
				t.Fatal("it was chosen")
			}
			if got := placement.Explain(hosts(h), &c.req); got != "a: "+c.want && !strings.HasPrefix(got, "a: "+c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDefaultsAreFilledIn(t *testing.T) {
	h, b := placement.Choose(hosts(vmHost("a")), &placement.Request{Spec: bus.Spec{MachineType: "big", Placement: bus.Placement{Zone: "eu"}, OnHostLoss: "wait"}})
	if h == nil {
		t.Fatal("not chosen")
	}
	if b.Spec.Image != "debian" || b.Spec.DiskGiB != 10 || strings.Join(b.Defaulted, " ") != "image diskGiB" {
		t.Errorf("got %+v", b)
	}
	if want := (bus.Capacity{VCPUs: 4, MemoryMiB: 8192, DiskGiB: 10, Slots: 1}); b.Shape != want {
		t.Errorf("shape %+v, want %+v", b.Shape, want)
	}
	if b.Spec.Placement.Zone != "" || b.Spec.OnHostLoss != "" {
		t.Error("a host is told where else the proxy might have gone")
	}
}

func TestZonesOfACloudAreLookedFor(t *testing.T) {
	cloud := vmHost("a")
	cloud.Offer.Zones = []string{"us-central1-a", "europe-west1-b"}
	for asked, want := range map[string]bool{"europe-west1-b": true, "us-central1": true, "us-central2": false, "us-central1-b": false, "us": false} {
		_, why := placement.Fit(cloud, &placement.Request{Spec: bus.Spec{Zones: []string{"asia-east1-a", asked}}})
		if why.Fits() != want {
			t.Errorf("%s: fits is %v (%s), want %v", asked, why.Fits(), why, want)
		}
	}
	if _, why := placement.Fit(vmHost("b"), &placement.Request{Spec: bus.Spec{Zones: []string{"us-central1"}}}); why.String() != "offers none of the zones us-central1" {
		t.Errorf("a host without zones: got %q", why)
	}
}

func TestAHostWithoutImagesTakesWhoNamesNone(t *testing.T) {
	if _, why := placement.Fit(plainHost("a"), &placement.Request{}); !why.Fits() {
		t.Error(why)
	}
	if _, why := placement.Fit(plainHost("a"), &placement.Request{Spec: bus.Spec{Image: "debian"}}); why.Fits() {
		t.Error("it takes an image")
	}
}

func TestASmallerShapeIsStillAskedOfAFullHost(t *testing.T) {
	h := vmHost("a")
	h.Full = []placement.Full{{Shape: bus.Capacity{VCPUs: 4, MemoryMiB: 8192, DiskGiB: 10, Slots: 1}}}
	if _, why := placement.Fit(h, &placement.Request{}); !why.Fits() {
		t.Error(why)
	}
}

func TestTheLeastLoadedIsChosenAndTiesGoByName(t *testing.T) {
	a, b, c := vmHost("a"), vmHost("b"), vmHost("c")
	for range 20 { // maps have no order
		if h, _ := placement.Choose(hosts(c, b, a), &placement.Request{}); h != a {
			t.Fatalf("got %s, want a", h.Name)
		}
	}
	a.Bound = bus.Capacity{VCPUs: 1, MemoryMiB: 1024, DiskGiB: 10, Slots: 1}
	b.Bound = bus.Capacity{DiskGiB: 80} // the scarcest counts
	if h, _ := placement.Choose(hosts(a, b, c), &placement.Request{}); h != c {
		t.Errorf("got %s, want c", h.Name)
	}
	p, q := plainHost("p"), plainHost("q")
	p.Bound.Slots = 1
	if h, _ := placement.Choose(hosts(p, q), &placement.Request{}); h != q {
		t.Errorf("got %s, want q: both are without limits, q has fewer", h.Name)
	}
}

func TestWhatIsPreferredComesBeforeTheLoad(t *testing.T) {
	a, b := vmHost("a"), vmHost("b")
	a.Bound.Slots = 2
	a.Labels = map[string]string{"disk": "fast"}
	req := &placement.Request{Spec: bus.Spec{Placement: bus.Placement{Prefer: bus.Preference{Zone: "eu", Labels: map[string]string{"disk": "fast"}}}}}
	if h, _ := placement.Choose(hosts(a, b), req); h != a {
		t.Errorf("got %s, want a", h.Name)
	}
	a.Bound.Slots = 3
	if h, _ := placement.Choose(hosts(a, b), req); h != b {
		t.Errorf("got %v, want b: what is preferred is not required", h)
	}
	verdicts := placement.Judge(hosts(a, b), req)
	if verdicts[0].Host != b || verdicts[0].Liking != 1 || verdicts[1].Why.Fits() {
		t.Errorf("got %+v", verdicts)
	}
}

func TestAReplacementStaysAndCountsWhatItReplacesAsFree(t *testing.T) {
	a, b := vmHost("a"), vmHost("b")
	a.Bound = bus.Capacity{VCPUs: 4, MemoryMiB: 4096, DiskGiB: 40, Slots: 3}
	req := &placement.Request{Prefer: "a", Release: bus.Capacity{VCPUs: 1, MemoryMiB: 1024, DiskGiB: 10, Slots: 1}}
	if h, _ := placement.Choose(hosts(a, b), req); h != a {
		t.Errorf("got %v, want a", h)
	}
	if h, _ := placement.Choose(hosts(a, b), &placement.Request{}); h != b {
		t.Errorf("got %v, want b: for others nothing is free on a", h)
	}
}

func TestAPinnedHostIsTheOnlyOneAsked(t *testing.T) {
	a, b := vmHost("a"), vmHost("b")
	pin := func(name string) *placement.Request {
		return &placement.Request{Spec: bus.Spec{Placement: bus.Placement{Host: name}}}
	}
	a.Bound.Slots = 2
	if h, _ := placement.Choose(hosts(a, b), pin("a")); h != a {
		t.Errorf("got %v, want a", h)
	}
	if got := placement.Explain(hosts(a, b), pin("c")); got != "host c is not known" {
		t.Errorf("got %q", got)
	}
	a.Closed = "silent"
	if h, _ := placement.Choose(hosts(a, b), pin("a")); h != nil {
		t.Errorf("got %s, want none", h.Name)
	}
	if got := placement.Explain(hosts(a, b), pin("a")); got != "a: silent" {
		t.Errorf("got %q: other hosts do not matter", got)
	}
}

func TestHostsWithOneReasonAreNamedTogether(t *testing.T) {
	all := hosts(vmHost("a"), vmHost("b"), vmHost("c"), vmHost("d"), plainHost("z"))
	got := placement.Explain(all, &placement.Request{Spec: bus.Spec{Image: "x", Placement: bus.Placement{Backend: "libvirt"}}})
	if want := "a, b, c and 1 more: does not offer image x; z: not of backend libvirt"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := placement.Explain(nil, &placement.Request{}); got != "no host is known" {
		t.Errorf("got %q", got)
	}
}
