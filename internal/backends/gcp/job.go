package gcp

import (
	"strings"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/told"
)

// job is one Ensure.
type job struct {
	backends.Request
	image    backends.Image
	shape    backends.MachineType
	port     int
	external bool
	told     told.Parts
	metadata []*computepb.Items
	report   func(backends.Progress)
}

func (j *job) name() string { return backends.InstanceName(j.UID) }

func (j *job) step(name string) { j.report(backends.Progress{Step: name}) }

// job looks a request up in the configuration; no request is made.
func (b *Backend) job(req backends.Request, report func(backends.Progress)) (*job, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) (*job, error) {
		return nil, backends.Errorf(backends.ErrPermanent, "check request", "proxy "+req.Proxy+": "+format, args...)
	}
	if req.Generation == 0 {
		return refuse("generation 0 is none")
	}
	if report == nil {
		report = func(backends.Progress) {}
	}
	j := &job{Request: req, report: report, port: req.Port}
	if j.port == 0 {
		j.port = DefaultPort
	}
	var ok bool
	if j.image, ok = b.host.Images[req.Image]; !ok || j.image.Family == "" {
		return refuse("image %q is none of this host's; images on Compute Engine are families or images by their path", req.Image)
	}
	if j.shape, ok = b.host.MachineTypes[req.MachineType]; !ok {
		return refuse("machine type %q is none of this host's", req.MachineType)
	}
	switch req.Address {
	case "", external, internal:
		j.external = req.Address == external || req.Address == "" && b.conf.Address == external
	default:
		return refuse("address %q is neither external nor internal", req.Address)
	}
	var err error
	if j.told, err = told.Of(req); err != nil {
		return nil, err
	}
	if j.metadata, err = b.metadata(j); err != nil {
		return nil, err
	}
	return j, nil
}

// imagePath is where an image comes from: a path as it is, or a family of our own project.
func (b *Backend) imagePath(i backends.Image) string {
	if strings.Contains(i.Family, "/") {
		return i.Family
	}
	return "projects/" + b.conf.Project + "/global/images/family/" + i.Family
}
