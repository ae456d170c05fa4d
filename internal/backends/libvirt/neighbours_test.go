package libvirt

import "testing"

func FuzzNeighbour(f *testing.F) {
	entry := []byte{2, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 8, 0, 1, 0, 192, 168, 122, 7, 10, 0, 2, 0, 0x52, 0x54, 0, 0, 0, 1, 0, 0}
	f.Add(entry)
	f.Add(entry[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		if address, mac, ok := neighbour(b); ok && (!address.IsValid() || len(mac) == 0) {
			t.Errorf("%x: got %s, %s", b, address, mac)
		}
	})
	address, mac, ok := neighbour(entry)
	if !ok || address.String() != "192.168.122.7" || mac.String() != "52:54:00:00:00:01" {
		f.Errorf("got %s, %s, %v", address, mac, ok)
	}
	entry[ndmsgState] = 0x20
	if _, _, ok := neighbour(entry); ok {
		f.Error("an entry that failed is believed")
	}
}
