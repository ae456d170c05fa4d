package libvirt

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// neighbours reads from the kernel of this host which addresses a MAC has answered for. It
// is asked by ourselves: libvirt 9.0 cannot read the table of newer kernels ("wrong nlmsg
// len"), and knows no more than this.
func neighbours(mac string) ([]string, error) {
	raw, err := syscall.NetlinkRIB(unix.RTM_GETNEIGH, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(raw)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range messages {
		if m.Header.Type == unix.RTM_NEWNEIGH {
			if address, of, ok := neighbour(m.Data); ok && strings.EqualFold(of.String(), mac) {
				found = append(found, address.String())
			}
		}
	}
	return found, nil
}

// Sizes and offsets of struct ndmsg and struct rtattr. Source: include/uapi/linux/neighbour.h,
// include/uapi/linux/rtnetlink.h.
const (
	ndmsgLen   = 12
	ndmsgState = 8
	rtattrLen  = 4
)

// unanswered are the states of an entry that nobody answered for.
const unanswered = unix.NUD_INCOMPLETE | unix.NUD_FAILED | unix.NUD_NOARP

// neighbour reads one entry of the table; ok is false where it has no answer.
func neighbour(b []byte) (address netip.Addr, mac net.HardwareAddr, ok bool) {
	if len(b) < ndmsgLen || binary.NativeEndian.Uint16(b[ndmsgState:])&unanswered != 0 {
		return netip.Addr{}, nil, false
	}
	for b = b[ndmsgLen:]; len(b) >= rtattrLen; {
		n, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if n < rtattrLen || n > len(b) {
			return netip.Addr{}, nil, false
		}
		switch value := b[rtattrLen:n]; kind {
		case unix.NDA_DST:
			address, ok = netip.AddrFromSlice(value)
		case unix.NDA_LLADDR:
			mac = net.HardwareAddr(value)
		}
		b = b[min((n+rtattrLen-1)&^(rtattrLen-1), len(b)):]
	}
	return address, mac, ok && len(mac) > 0
}
