package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/placement"
)

// change brings a binding in line with an intent that was accepted after it was made: not
// at all, in place, or by a new uid. What runs goes on running until that can be done.
func (m *Model) change(d *decision) {
	h := m.hosts[d.next.Host]
	stays := h != nil && h.doc != nil && placement.Matches(h.offer, d.next.Accepted.Spec.Placement).Fits() && m.avoid(d)[h.name] == ""
	target := standing(d.next.Accepted.Spec, &d.next, h)
	fields := differ(target, *d.next.Bound)
	if stays && h.inPlace(fields, target, *d.next.Bound) {
		if shape, ok := reshape(d, h, target, fields); ok {
			m.changeInPlace(d, target, fields, shape)
			return
		}
	}
	why := m.swap(d, h, stays)
	if why == "" {
		m.sayProxy(d.p, "Replaced", bus.Event{Cause: "intent", Host: d.next.Host, UID: d.next.UID, Seq: d.next.IntentSeq,
			Message: replacedText(d, fields, stays)})
		return
	}
	m.waitFor(d, "the change waits, what runs is kept: "+why)
	if d.next.Desired != d.next.Accepted.Desired { // needs no other binding
		d.next.Desired = d.next.Accepted.Desired
		d.next.Generation++
		m.assign(d)
	}
}

// swap replaces the binding, or says why not.
func (m *Model) swap(d *decision, h *host, stays bool) (why string) {
	switch {
	case m.frozen != "":
		return m.frozen
	case h == nil || !h.reachable && (h.lost.IsZero() || d.next.Accepted.Spec.OnHostLoss == "wait"):
		return fmt.Sprintf("host %s is silent, so what runs there could not be removed", d.next.Host)
	case h.doc == nil && h.lost.IsZero():
		return fmt.Sprintf("host %s has not said yet what it can change in place", d.next.Host)
	}
	req := m.request(d)
	if stays {
		req.Prefer, req.Release = d.next.Host, *d.next.Shape
	}
	if !m.replace(d, req) {
		return placement.Explain(m.offers, req)
	}
	return ""
}

func (m *Model) changeInPlace(d *decision, target bus.Spec, fields []string, shape *bus.Capacity) {
	if len(fields) == 0 && d.next.Desired == d.next.Accepted.Desired {
		d.next.Applied, d.changed = d.next.IntentSeq, true // the ledger only
		return
	}
	d.next.Bound, d.next.Shape = &target, shape
	d.next.Generation++
	m.apply(d)
	m.sayProxy(d.p, "Changed", bus.Event{Cause: "intent", Host: d.next.Host, UID: d.next.UID, Seq: d.next.IntentSeq,
		Message: fmt.Sprintf("generation %d, in place", d.next.Generation)})
}

// inPlace reports whether the host changes these fields without a new uid. No disk shrinks
// under what is on it.
func (h *host) inPlace(fields []string, target, bound bus.Spec) bool {
	return target.DiskGiB >= bound.DiskGiB && !slices.ContainsFunc(fields, func(f string) bool { return !slices.Contains(h.doc.InPlace, f) })
}

// reshape is what the binding takes of its host once fields have changed in place, where there
// is room for it.
func reshape(d *decision, h *host, target bus.Spec, fields []string) (shape *bus.Capacity, ok bool) {
	if !slices.Contains(fields, "machineType") && !slices.Contains(fields, "diskGiB") {
		return d.next.Shape, true
	}
	b, why := placement.Bind(h.offer, target)
	if !why.Fits() || d.next.Shape == nil {
		return nil, false
	}
	return &b.Shape, placement.Room(h.offer, b.Shape, *d.next.Shape).Fits()
}

func replacedText(d *decision, fields []string, stays bool) string {
	what := "its host is not one that the intent asks for"
	if stays {
		what = strings.Join(fields, ", ") + " cannot change in place"
	}
	return fmt.Sprintf("%s; a new instance on host %s takes its place", what, d.next.Host)
}

// standing is a spec as it would be bound where the proxy of a ledger entry is now: a field
// that was left to the host and still is keeps what it was given then.
func standing(s bus.Spec, l *bus.Ledger, h *host) bus.Spec {
	s.Placement, s.OnHostLoss = bus.Placement{}, ""
	bound := l.Bound
	var offer bus.Offer
	if h != nil && h.doc != nil {
		offer = h.doc.Offer
	}
	kept := func(field string) bool { return slices.Contains(l.Defaulted, field) }
	if s.Image == "" {
		s.Image = offer.DefaultImage
		if kept("image") {
			s.Image = bound.Image
		}
	}
	if s.MachineType == "" {
		s.MachineType = offer.DefaultMachineType
		if kept("machineType") {
			s.MachineType = bound.MachineType
		}
	}
	if s.DiskGiB == 0 {
		s.DiskGiB = offer.DefaultDiskGiB
		if kept("diskGiB") {
			s.DiskGiB = bound.DiskGiB
		}
	}
	return s
}

// differ names the fields in which two bound specs differ, as a host's inPlace names them.
func differ(a, b bus.Spec) []string {
	var out []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"port", a.Port == b.Port},
		{"auth", reflect.DeepEqual(a.Auth, b.Auth)},
		{"allowFrom", slices.Equal(a.AllowFrom, b.AllowFrom)},
		{"egress", reflect.DeepEqual(orZero(a.Egress), orZero(b.Egress))},
		{"image", a.Image == b.Image},
		{"machineType", a.MachineType == b.MachineType},
		{"diskGiB", a.DiskGiB == b.DiskGiB},
		{"zones", slices.Equal(a.Zones, b.Zones)},
		{"address", a.Address == b.Address},
		{"cloudInit", a.CloudInit == b.CloudInit && a.CloudInitBase64 == b.CloudInitBase64},
	} {
		if !f.same {
			out = append(out, f.name)
		}
	}
	return out
}

func orZero(e *bus.Egress) bus.Egress {
	if e == nil {
		return bus.Egress{}
	}
	if len(e.ConnectPorts) == 0 {
		return bus.Egress{Private: e.Private}
	}
	return *e
}
