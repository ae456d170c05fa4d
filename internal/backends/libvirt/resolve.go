package libvirt

import (
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// defaultPort is what a proxy listens on where the intent does not say: each guest has an
// address of its own, so one port fits all.
const defaultPort = 3128

// defaultDiskGiB is for hosts that configure none.
const defaultDiskGiB = 10

// resolve looks the request's keys up in the host's configuration, filling in what the
// intent left out. A key that is not there is ErrPermanent, but only for a guest that is yet
// to be made: one that exists outlives its entry in the configuration.
func (b *Backend) resolve(req backends.Request) resolved {
	r := resolved{Request: req}
	if r.Image == "" {
		r.Image = b.host.Defaults.Image
	}
	if r.MachineType == "" {
		r.MachineType = b.host.Defaults.MachineType
	}
	if r.DiskGiB == 0 {
		r.DiskGiB = b.host.Defaults.DiskGiB
	}
	if r.DiskGiB == 0 {
		r.DiskGiB = defaultDiskGiB
	}
	var known bool
	if r.shape, known = b.host.MachineTypes[r.MachineType]; !known {
		r.missing = backends.Errorf(backends.ErrPermanent, "check request", "this host has no machine type %q", r.MachineType)
	}
	if r.image, known = b.host.Images[r.Image]; !known {
		r.image = backends.Image{URL: r.Image}
		switch {
		case !strings.Contains(r.Image, "://"):
			r.missing = backends.Errorf(backends.ErrPermanent, "check request", "this host has no image %q", r.Image)
		case !b.host.AllowImageURLs:
			r.missing = backends.Errorf(backends.ErrPermanent, "check request", "this host takes no image URLs from intents (allowImageURLs)")
		}
	}
	if r.image.Firmware == "" {
		r.image.Firmware = "uefi"
	}
	return r
}

// source is where the image of r comes from.
func (r resolved) source() images.Source { return sourceOf(r.Image, r.image) }

func sourceOf(key string, i backends.Image) images.Source {
	return images.Source{Key: key, URL: i.URL, File: i.File, Digest: i.Digest, Format: i.Format}
}
