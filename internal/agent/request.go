package agent

import (
	"encoding/base64"
	"net/netip"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

// request is what a backend is asked for, with the host's defaults filled in. The leader
// has checked the spec; what cannot be read all the same is ErrPermanent.
func request(a bus.Assignment, def backends.Defaults) (backends.Request, error) {
	const op = "read assignment"
	r := backends.Request{Ref: ref(a), Generation: a.Generation, Desired: backends.Desired(a.Desired), Pool: a.Pool}
	if a.Spec == nil {
		return r, backends.Errorf(backends.ErrPermanent, op, "proxy %s has no spec", a.Proxy)
	}
	s := *a.Spec
	r.Port, r.DiskGiB = s.Port, s.DiskGiB
	r.Image, r.MachineType = s.Image, s.MachineType
	if r.Image == "" {
		r.Image = def.Image
	}
	if r.MachineType == "" {
		r.MachineType = def.MachineType
	}
	if r.DiskGiB == 0 {
		r.DiskGiB = def.DiskGiB
	}
	if s.Auth != nil {
		r.Access.Username, r.Access.Password = s.Auth.Username, s.Auth.Password
	}
	for _, text := range s.AllowFrom {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return r, backends.Errorf(backends.ErrPermanent, op, "proxy %s: allowFrom %q is not a network in CIDR form", a.Proxy, text)
		}
		r.Access.AllowFrom = append(r.Access.AllowFrom, p.Masked())
	}
	if s.Egress != nil {
		r.Access.Private, r.Access.ConnectPorts = s.Egress.Private, s.Egress.ConnectPorts
	}
	r.Zones, r.Address = s.Zones, s.Address
	r.UserData = []byte(s.CloudInit)
	if s.CloudInitBase64 != "" {
		raw, err := base64.StdEncoding.DecodeString(s.CloudInitBase64)
		if err != nil {
			return r, backends.Errorf(backends.ErrPermanent, op, "proxy %s: cloudInitBase64 is not base64", a.Proxy)
		}
		r.UserData = raw
	}
	return r, nil
}

func ref(a bus.Assignment) backends.Ref { return backends.Ref{Proxy: a.Proxy, UID: a.UID} }
