package libvirt

import (
	"net"
	"strconv"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
)

// lowMemory is where a host is told to be nearly out of memory, in MiB: below it the kernel
// ends guests.
const lowMemory = 256

// checkHost looks at processors and memory as the daemon sees them.
func checkHost(s *session) backends.TargetHealth {
	var cpus int32
	var stats []golibvirt.NodeGetMemoryStats
	err := s.do("read host", readBudget, 0, func(l *golibvirt.Libvirt) (err error) {
		if _, _, cpus, _, _, _, _, _, err = l.NodeGetInfo(); err != nil {
			return err
		}
		_, n, err := l.NodeGetMemoryStats(0, int32(golibvirt.NodeMemoryStatsAllCells), 0)
		if err == nil {
			stats, _, err = l.NodeGetMemoryStats(n, int32(golibvirt.NodeMemoryStatsAllCells), 0)
		}
		return err
	})
	h := verdict("host", err)
	if err != nil {
		return h
	}
	// Free, and what the kernel gives back when it is asked for. Source:
	// virHostMemGetStatsLinux in libvirt's src/util/virhostmem.c.
	kib := map[string]uint64{}
	for _, stat := range stats {
		kib[stat.Field] = stat.Value
	}
	free := (kib["free"] + kib["cached"] + kib["buffers"]) >> 10
	h.Details["cpus"] = strconv.Itoa(int(cpus))
	h.Details["memoryMiB"] = strconv.FormatUint(kib["total"]>>10, 10)
	h.Details["memoryFreeMiB"] = strconv.FormatUint(free, 10)
	if free < lowMemory {
		h.Code, h.Message = backends.CheckLowMemory, "the host is nearly out of memory; its kernel ends guests when it is. Take proxies away, or raise limits.reserve.memoryMiB"
	}
	return h
}

// checkClock asks the kernel of the agent's own host, which is that of its guests, whether
// something keeps its clock.
func checkClock() backends.TargetHealth {
	h := backends.TargetHealth{Target: "clock", Code: backends.CheckOK, Details: map[string]string{}}
	var now unix.Timex
	if _, err := unix.Adjtimex(&now); err != nil {
		h.Code, h.Message = backends.CheckAPIError, "the clock's state cannot be read: "+err.Error()
		return h
	}
	h.Details["errorAtMost"] = (time.Duration(now.Maxerror) * time.Microsecond).String()
	if now.Status&unix.STA_UNSYNC != 0 {
		h.Code, h.Message = backends.CheckClockUnsynchronised,
			"nothing keeps the host's clock, and guests start with it; certificates and leases go by time. Run chrony or systemd-timesyncd"
	}
	return h
}

// checkNetwork looks at what guests are attached to. A device on another host is not looked
// at: libvirt does not list them everywhere.
func (b *Backend) checkNetwork(s *session) backends.TargetHealth {
	n := b.cfg.Network
	h := verdict(n.target(), b.networkUp(s))
	if h.Code != backends.CheckOK {
		return h
	}
	device := n.Bridge + n.Direct
	if device == "" || b.cfg.Remote() || n.OpenVSwitch {
		return h
	}
	card, err := net.InterfaceByName(device)
	switch {
	case err != nil:
		h.Code, h.Message = backends.CheckNetworkNotFound, "the host has no network device "+device+"; make it, or correct network ("+err.Error()+")"
	case card.Flags&net.FlagUp == 0:
		h.Code, h.Message = backends.CheckNetworkNotActive, "the network device "+device+" is down; bring it up (ip link set "+device+" up)"
	default:
		h.Details["mtu"] = strconv.Itoa(card.MTU)
	}
	return h
}

// checkAddresses tells of guests that have one address.
func (b *Backend) checkAddresses() backends.TargetHealth {
	shared, known := b.guests.shared()
	h := backends.TargetHealth{Target: "addresses", Code: backends.CheckOK, Details: map[string]string{"guestsKnown": strconv.Itoa(known)}}
	if len(shared) > 0 {
		h.Code, h.Message = backends.CheckAddressShared,
			"guests share addresses: "+strings.Join(shared, "; ")+". One of them is configured by hand, or two DHCP servers answer"
	}
	return h
}
