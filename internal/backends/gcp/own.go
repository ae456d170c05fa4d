package gcp

import (
	_ "embed"

	"proxyfleet/internal/backends/nocloud"
)

// ownAddresses is the script that keeps squid.DefaultOwnAddresses, in the guest. What it asks for:
// https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys and
// https://cloud.google.com/compute/docs/metadata/querying-metadata#waitforchange.
//
//go:embed own-addresses.sh
var ownAddresses []byte

const (
	ownPath = "/etc/squid/own-addresses.sh"
	// ownUnit follows changes. It needs no enabling: Squid's drop-in wants it.
	ownUnit = "proxyfleet-addresses.service"
)

// ownFiles have a guest know which addresses are its own before Squid starts, and for as long as
// it runs. A guest cannot know its external address by itself, and the agent knows it only once
// the instance is there.
func ownFiles() []nocloud.File {
	return []nocloud.File{
		{Path: ownPath, Data: ownAddresses},
		{Path: "/etc/systemd/system/" + ownUnit, Data: []byte("# Written by proxyfleet: follows the addresses that Squid refuses as destinations.\n" +
			"[Unit]\nDescription=Own addresses of a proxy\nAfter=squid.service\n[Service]\nExecStart=/bin/sh " + ownPath + " follow\nRestart=always\nRestartSec=5\n")},
		{Path: "/etc/systemd/system/squid.service.d/proxyfleet.conf", Data: []byte("# Written by proxyfleet: addresses that Squid refuses as destinations.\n" +
			"[Unit]\nWants=" + ownUnit + "\n[Service]\nExecStartPre=+/bin/sh " + ownPath + "\nRestart=on-failure\nRestartSec=10\n")},
	}
}
