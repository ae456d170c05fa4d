//go:build real

package libvirt

import (
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

// lease makes libvirt's DHCP server say that it gave these addresses.
func (d daemon) lease(t testing.TB, byMAC map[string]string) {
	t.Helper()
	var leases []string
	for mac, address := range byMAC {
		leases = append(leases, `{"ip-address": "`+address+`", "mac-address": "`+mac+`", "expiry-time": 4102444800}`)
	}
	must(t, os.WriteFile(d.Dir+"/lib/dnsmasq/virbr0.status", []byte("["+strings.Join(leases, ",")+"]"), 0o600))
}

func TestAddressesComeFromLeasesAndThenFromNeighbours(t *testing.T) {
	h := startHost(t)
	one, two := request(newRef()), request(newRef())
	two.Proxy = "crawl-2"
	h.ensure(t, one)
	if i := h.get(t, one.Ref); len(i.Addresses) != 0 || i.AddressUnread {
		t.Errorf("before it has one: %+v", i)
	}
	wants := func(address string) {
		t.Helper()
		var i backends.Instance
		must(t, h.Within(func() { i = h.get(t, one.Ref) }))
		if !reflect.DeepEqual(i.Addresses, []netip.Addr{netip.MustParseAddr(address)}) {
			t.Errorf("got %+v, want %s", i, address)
		}
	}
	h.Inside(t, "ip", "neigh", "replace", "192.168.122.77", "lladdr", macAddress(one.UID), "dev", "virbr0", "nud", "reachable")
	wants("192.168.122.77")
	h.lease(t, map[string]string{macAddress(one.UID): "192.168.122.78", "52:54:00:00:00:00": "192.168.122.79"})
	wants("192.168.122.78")

	h.ensure(t, two)
	h.lease(t, map[string]string{macAddress(one.UID): "192.168.122.78", macAddress(two.UID): "192.168.122.78"})
	if i := h.get(t, two.Ref); i.Reason != "AddressShared" || !strings.Contains(i.Message, "crawl-1") || i.Status != backends.StatusRunning {
		t.Errorf("got %+v, want AddressShared", i)
	}
	wantCheck(t, h, "addresses", backends.CheckAddressShared)
	h.delete(t, two.Ref)
	if i := h.get(t, one.Ref); i.Reason != "" {
		t.Errorf("alone again: %+v", i)
	}
	wantCheck(t, h, "addresses", backends.CheckOK)
	h.delete(t, one.Ref)
}

func TestAGuestThatReportsNoAddressForLongShowsItsConsole(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	h.ensure(t, req)
	h.get(t, req.Ref)
	h.now = func() time.Time { return time.Now().Add(silentAfter) }
	console, err := os.OpenFile(h.place().console(backends.InstanceName(req.UID)), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = console.WriteString("\x1b[0mKernel panic - not syncing: VFS\r\n")
	must(t, errors.Join(err, console.Close()))
	if i := h.get(t, req.Ref); i.Reason != "GuestSilent" || i.Status != backends.StatusRunning || !strings.HasSuffix(i.Message, "\nKernel panic - not syncing: VFS") {
		t.Errorf("got %+v, want the console", i)
	}
	h.delete(t, req.Ref)
}

func TestAGuestOnABridgeOrACardOfTheHost(t *testing.T) {
	d := startDaemon(t)
	d.Inside(t, "ip", "link", "add", "br0", "type", "bridge")
	d.Inside(t, "ip", "link", "set", "br0", "up")
	d.Inside(t, "ip", "link", "add", "card0", "type", "veth", "peer", "name", "card1")
	d.Inside(t, "ip", "link", "set", "card0", "up")
	for target, n := range map[string]Network{"network/br0": {Bridge: "br0"}, "network/card0": {Direct: "card0"}} {
		t.Run(target, func(t *testing.T) {
			h := remoteHost(t, d, Config{URI: d.URI(), VirtType: "qemu", Network: n})
			must(t, d.Within(func() { wantCheck(t, h, target, backends.CheckOK) }))
			req := request(newRef())
			h.ensure(t, req)
			if i := h.get(t, req.Ref); i.Status != backends.StatusRunning || i.AddressUnread {
				t.Errorf("got %+v, want Running without an address", i)
			}
			h.delete(t, req.Ref)
		})
	}
	h := remoteHost(t, d, Config{URI: d.URI(), VirtType: "qemu", Network: Network{Bridge: "br0", VLAN: 7}})
	_, err := h.Ensure(t.Context(), request(newRef()), nil)
	wantClass(t, err, backends.ErrHostFault) // this libvirt is older than 11.0
	wantCheck(t, h, "network/br0", backends.CheckAPIError)
	none := remoteHost(t, d, Config{URI: d.URI(), VirtType: "qemu", Network: Network{Bridge: "br9"}})
	wantCheck(t, none, "network/br9", backends.CheckNetworkNotFound)
	d.Inside(t, "ip", "link", "set", "br0", "down")
	down := remoteHost(t, d, Config{URI: d.URI(), VirtType: "qemu", Network: Network{Bridge: "br0"}})
	must(t, d.Within(func() { wantCheck(t, down, "network/br0", backends.CheckNetworkNotActive) }))
}
