package placement

import (
	"slices"
	"strconv"
	"strings"

	"proxyfleet/internal/bus"
)

// Host is a host as placement sees it. Its owner keeps it up to date.
type Host struct {
	Name    string
	Backend string
	Zone    string
	Labels  map[string]string
	Offer   bus.Offer
	// Bound is what bindings take of the offer's capacity: those the host has not yet
	// reported, and those that are retired and not yet gone, included.
	Bound bus.Capacity
	// Closed says why the host takes no new proxies: it is silent, or has a fault of its
	// own. Empty: it takes them.
	Closed string
	// Full are shapes for which the host itself said that it has no room, some with a port.
	// They and larger ones are not asked for until the owner removes them.
	Full []Full
}

// Request is one question.
type Request struct {
	Spec bus.Spec
	// Refused are hosts that said they cannot run this very proxy, with their reasons.
	Refused map[string]string
	// Avoid are hosts that have something which the proxy must keep away from, with its name.
	Avoid map[string]string
	// Prefer is the host to stay on where it fits, whatever its load.
	Prefer string
	// Release is what goes from host Prefer as soon as the proxy is placed there: the
	// binding that it replaces.
	Release bus.Capacity
	// OnHost and InZone are how many other members of the proxy's pool are on each host and
	// in each zone. Fewer is better.
	OnHost, InZone map[string]int
	// MaxPerHost and MaxPerZone bound them, this one included; 0: no bound.
	MaxPerHost, MaxPerZone int
}

// Binding is how a spec looks on one host.
type Binding struct {
	Spec      bus.Spec     // the host's defaults filled in; placement rules left out
	Defaulted []string     // JSON names of the fields that were filled in
	Shape     bus.Capacity // what it takes of the host
}

// Why says why a host does not fit. The zero value means that it does.
type Why struct{ what, detail string }

// Full is what a host said that it has no room for.
type Full struct {
	Shape bus.Capacity
	// Port that was asked for; 0: none was. Where one was it may be all that is taken, so
	// this says nothing of requests for another port.
	Port int
}

// Fits reports whether w is no reason at all.
func (w Why) Fits() bool { return w.what == "" }

func (w Why) String() string { return strings.TrimSuffix(w.what+" "+w.detail, " ") }

// Fit says how req's spec would be bound to h, or why it cannot be. h must be the pinned
// host where the spec has one.
func Fit(h *Host, req *Request) (Binding, Why) {
	if w := Matches(h, req.Spec.Placement); !w.Fits() {
		return Binding{}, w
	}
	if h.Closed != "" {
		return Binding{}, Why{h.Closed, ""}
	}
	if other := req.Avoid[h.Name]; other != "" {
		return Binding{}, Why{"has what it keeps away from:", other}
	}
	if why := req.Refused[h.Name]; why != "" {
		return Binding{}, Why{"refused it:", why}
	}
	if w := apart(h, req); !w.Fits() {
		return Binding{}, w
	}
	b, w := Bind(h, req.Spec)
	if !w.Fits() {
		return Binding{}, w
	}
	for _, full := range h.Full {
		switch {
		case !covers(b.Shape, full.Shape):
		case full.Port == 0:
			return Binding{}, Why{"no room for this shape, by its own word", ""}
		case full.Port == req.Spec.Port:
			return Binding{}, Why{"no room for this port, by its own word:", strconv.Itoa(full.Port)}
		}
	}
	var release bus.Capacity
	if h.Name == req.Prefer {
		release = req.Release
	}
	return b, Room(h, b.Shape, release)
}

// Matches checks what a spec asks of the host as such: name, backend, zone, labels.
func Matches(h *Host, p bus.Placement) Why {
	if p.Host != "" && p.Host != h.Name {
		return Why{"not the host asked for,", p.Host}
	}
	if p.Backend != "" && p.Backend != h.Backend {
		return Why{"not of backend", p.Backend}
	}
	if p.Zone != "" && p.Zone != h.Zone {
		return Why{"not in zone", p.Zone}
	}
	for k, v := range p.Labels {
		if h.Labels[k] != v {
			return Why{"other labels", ""}
		}
	}
	return Why{}
}

// apart checks that no more members of a pool come together than may.
func apart(h *Host, req *Request) Why {
	switch {
	case req.MaxPerHost > 0 && req.OnHost[h.Name] >= req.MaxPerHost:
		return Why{"has as many of its pool as a host may:", strconv.Itoa(req.MaxPerHost)}
	case req.MaxPerZone > 0 && req.InZone[h.Zone] >= req.MaxPerZone:
		return Why{"is in a zone that has as many of its pool as a zone may:", strconv.Itoa(req.MaxPerZone)}
	}
	return Why{}
}

// Bind fills the host's defaults in and finds the shape. It does not ask for room.
func Bind(h *Host, spec bus.Spec) (Binding, Why) {
	b := Binding{Spec: spec}
	b.Spec.Placement, b.Spec.OnHostLoss = bus.Placement{}, ""
	b.Shape.Slots = 1
	for _, fill := range []func(*Host, *Binding) Why{bindZones, bindImage, bindMachine, bindDisk} {
		if w := fill(h, &b); !w.Fits() {
			return Binding{}, w
		}
	}
	return b, Why{}
}

// bindZones wants one of the zones that a spec asks for, itself or by its region: "us-central1"
// stands for "us-central1-a" too.
func bindZones(h *Host, b *Binding) Why {
	if len(b.Spec.Zones) == 0 {
		return Why{}
	}
	for _, z := range h.Offer.Zones {
		for _, asked := range b.Spec.Zones {
			if z == asked || regionOf(z) == asked {
				return Why{}
			}
		}
	}
	return Why{"offers none of the zones", strings.Join(b.Spec.Zones, ", ")}
}

// regionOf is a zone without its last part.
func regionOf(zone string) string { return zone[:max(strings.LastIndexByte(zone, '-'), 0)] }

func bindImage(h *Host, b *Binding) Why {
	o := &h.Offer
	takesNone := len(o.Images) == 0 && o.DefaultImage == "" && !o.ImageURLs
	image := b.Spec.Image
	switch {
	case image == "" && takesNone:
	case image == "" && o.DefaultImage == "":
		return Why{"no default image, and the intent names none", ""}
	case image == "":
		b.Spec.Image = o.DefaultImage
		b.Defaulted = append(b.Defaulted, "image")
	case strings.Contains(image, "://"):
		if !o.ImageURLs {
			return Why{"takes no image URLs", ""}
		}
	case !slices.Contains(o.Images, image):
		return Why{"does not offer image", image}
	}
	return Why{}
}

func bindMachine(h *Host, b *Binding) Why {
	o := &h.Offer
	name := b.Spec.MachineType
	if name == "" && len(o.MachineTypes) == 0 {
		return Why{}
	}
	if name == "" {
		if name = o.DefaultMachineType; name == "" {
			return Why{"no default machine type, and the intent names none", ""}
		}
		b.Spec.MachineType = name
		b.Defaulted = append(b.Defaulted, "machineType")
	}
	for i := range o.MachineTypes {
		if t := &o.MachineTypes[i]; t.Name == name {
			b.Shape.VCPUs, b.Shape.MemoryMiB = t.VCPUs, t.MemoryMiB
			return Why{}
		}
	}
	return Why{"does not offer machine type", name}
}

func bindDisk(h *Host, b *Binding) Why {
	if b.Spec.DiskGiB == 0 && h.Offer.DefaultDiskGiB != 0 {
		b.Spec.DiskGiB = h.Offer.DefaultDiskGiB
		b.Defaulted = append(b.Defaulted, "diskGiB")
	}
	b.Shape.DiskGiB = b.Spec.DiskGiB
	return Why{}
}

// Room says whether h has room for need, once release is given back.
func Room(h *Host, need, release bus.Capacity) Why {
	c, bound := h.Offer.Capacity, h.Bound
	for _, d := range [...]struct {
		name                       string
		has, bound, need, released int
	}{
		{"vCPUs", c.VCPUs, bound.VCPUs, need.VCPUs, release.VCPUs},
		{"memory", c.MemoryMiB, bound.MemoryMiB, need.MemoryMiB, release.MemoryMiB},
		{"disk", c.DiskGiB, bound.DiskGiB, need.DiskGiB, release.DiskGiB},
		{"slots", c.Slots, bound.Slots, need.Slots, release.Slots},
	} {
		if d.has >= 0 && d.need > 0 && d.bound-d.released+d.need > d.has {
			return Why{"not enough left of", d.name}
		}
	}
	return Why{}
}

// covers reports whether a takes at least as much as b of everything.
func covers(a, b bus.Capacity) bool {
	return a.VCPUs >= b.VCPUs && a.MemoryMiB >= b.MemoryMiB && a.DiskGiB >= b.DiskGiB && a.Slots >= b.Slots
}
