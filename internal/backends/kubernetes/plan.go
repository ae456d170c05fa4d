package kubernetes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/squid"
)

// plan is a request worked out: everything that its objects are rendered from.
type plan struct {
	req    backends.Request
	files  squid.Files
	image  string
	shape  backends.MachineType
	listen int // port of the container
	config string
	fixed  string
}

// plan refuses what this host cannot run, as ErrPermanent, before anything is asked.
func (b *Backend) plan(req backends.Request) (plan, error) {
	if err := req.Validate(); err != nil {
		return plan{}, err
	}
	refuse := func(format string, args ...any) (plan, error) {
		return plan{}, backends.Errorf(backends.ErrPermanent, "ensure", "proxy "+req.Proxy+": "+format, args...)
	}
	if len(req.UserData) > 0 {
		return refuse("it asks for cloud-init, which a Pod does not have")
	}
	image, ok := b.host.Images[req.Image]
	if !ok {
		return refuse("image %q is not one of this host: %s", req.Image, keys(b.host.Images))
	}
	shape, ok := b.host.MachineTypes[req.MachineType]
	if !ok {
		return refuse("machine type %q is not one of this host: %s", req.MachineType, keys(b.host.MachineTypes))
	}
	p := plan{req: req, image: image.Container, shape: shape, listen: DefaultPort,
		fixed: digest(fmt.Sprint(req.Port), req.Image, req.MachineType)}
	if image.Digest != "" {
		p.image += "@" + image.Digest
	}
	if b.conf.Expose == exposePod && req.Port != 0 {
		p.listen = req.Port
	}
	var err error
	p.files, err = squid.Render(squid.Params{UID: req.UID, Port: p.listen, Access: req.Access, OwnAddresses: ownAddresses,
		Passwords: passwordsPath, PIDFile: "none", CacheLog: "/dev/stderr"})
	if err != nil {
		return plan{}, err
	}
	p.config = digest(string(p.files.Conf), string(p.files.Passwords))
	return p, nil
}

func keys[V any](m map[string]V) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }
