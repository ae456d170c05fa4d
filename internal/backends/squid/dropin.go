package squid

import "fmt"

// DefaultOwnAddresses is where a guest keeps its own addresses for Squid.
const DefaultOwnAddresses = "/etc/squid/own-addresses"

// DropIn is a systemd drop-in for squid.service, which writes the machine's addresses to
// path before each start. Network must be up by then, which Debian's unit asks for.
func DropIn(path string) []byte {
	return fmt.Appendf(nil, "# Written by proxyfleet: addresses that Squid refuses as destinations.\n"+
		"[Service]\nExecStartPre=+/bin/sh -c 'hostname -I | tr -s \" \" \"\\\\n\" >%s'\n", path)
}
