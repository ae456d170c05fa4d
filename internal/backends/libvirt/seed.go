package libvirt

import (
	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/nocloud"
	"proxyfleet/internal/backends/squid"
)

// seeder makes seeds: Squid's files, the operator's vendor-data, the user's data.
type seeder struct {
	vendorData []byte
	guestAgent bool
	ipv6       bool
}

// build returns the seed's ISO image. It is the same each time for the same request.
func (s seeder) build(r resolved, port int) ([]byte, error) {
	files, err := squid.Render(squid.Params{UID: r.UID, Port: port, Access: r.Access, OwnAddresses: squid.DefaultOwnAddresses})
	if err != nil {
		return nil, err
	}
	boot := nocloud.Bootstrap{InstallGuestAgent: s.guestAgent, Files: []nocloud.File{
		{Path: "/etc/systemd/system/squid.service.d/proxyfleet.conf", Data: squid.DropIn(squid.DefaultOwnAddresses)},
		{Path: "/etc/squid/squid.conf", Data: files.Conf, Squid: true},
	}}
	if files.Passwords != nil {
		boot.Files = append(boot.Files, nocloud.File{Path: squid.DefaultPasswords, Data: files.Passwords, Squid: true})
	}
	vendor, err := nocloud.VendorData(
		nocloud.Part{Name: "operator", Data: s.vendorData},
		nocloud.Part{Name: "proxyfleet.sh", ContentType: "text/x-shellscript", Data: boot.Script()})
	if err != nil {
		return nil, backends.Wrap(backends.ErrPermanent, "build seed", err, "vendor-data")
	}
	iso, err := nocloud.Build(nocloud.Seed{
		InstanceID: r.UID, Hostname: r.Proxy, MAC: macAddress(r.UID), IPv6: s.ipv6, UserData: r.UserData, VendorData: vendor,
	})
	if err != nil {
		return nil, backends.Wrap(backends.ErrPermanent, "build seed", err, "the seed of proxy %s", r.Proxy)
	}
	return iso, nil
}
