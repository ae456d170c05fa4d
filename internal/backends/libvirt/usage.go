package libvirt

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"strconv"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// requirement is what one instance takes of the host.
type requirement struct {
	vcpus     int
	memoryMiB int
	diskBytes int64
}

func (a requirement) plus(b requirement) requirement {
	return requirement{a.vcpus + b.vcpus, a.memoryMiB + b.memoryMiB, a.diskBytes + b.diskBytes}
}

// usage is a host counted: what it has for proxies, and what proxies take of that. Proxies
// of other agents on the same pool are counted as ours are.
type usage struct {
	total requirement
	taken requirement
	slots int // of this agent's limit, -1: no limit
	used  int
	// counted are the uids whose markers were counted.
	counted map[string]bool
}

// facts are the numbers that usage is made of.
type facts struct {
	hostCPUs     int
	memAvailable int64 // MiB
	diskFree     int64 // bytes
	// residentOurs is what our running guests hold in memory, allocatedOurs what our disks
	// hold in the pool: both are missing from what is available, and are for proxies.
	residentOurs  int64 // MiB
	allocatedOurs int64 // bytes
	// promised is memory of others' running guests that they have not touched yet, and may
	// at any moment.
	promised int64 // MiB
}

// count is the arithmetic of capacity: what is there less the reserve, times overcommit.
// Memory counts guests that are defined and stopped, disks count at their virtual size.
func count(f facts, l backends.Limits) requirement {
	times := func(n int64, factor float64) int64 {
		if factor == 0 {
			factor = 1
		}
		return max(int64(float64(n)*factor), 0)
	}
	return requirement{
		vcpus:     int(times(int64(f.hostCPUs), l.Overcommit.VCPUs)),
		memoryMiB: int(times(f.memAvailable+f.residentOurs-f.promised-int64(l.Reserve.MemoryMiB), l.Overcommit.Memory)),
		diskBytes: times(f.diskFree+f.allocatedOurs-int64(l.Reserve.DiskGiB)<<30, l.Overcommit.Disk),
	}
}

// usage reads and counts the host.
func (b *Backend) usage(s *session, p storage) (usage, error) {
	var f facts
	u := usage{slots: -1, counted: map[string]bool{}}
	pool, err := p.inventory(s)
	if err != nil {
		return u, err
	}
	for _, un := range pool.unread {
		b.log.WarnContext(s.ctx, "a marker cannot be read and is not counted", "path", un.What, "error", un.Err)
	}
	ours := map[string]bool{}
	for _, m := range pool.markers {
		n := backends.InstanceName(m.UID)
		ours[n], u.counted[m.UID] = true, true
		u.taken = u.taken.plus(requirement{m.VCPUs, m.MemoryMiB, m.DiskBytes})
		if disk, there := pool.disk(n); there {
			f.allocatedOurs += disk.bytes
		}
		if m.mark().Owned(b.owner) {
			u.used++
		}
	}
	if l := b.host.Limits.Slots; l > 0 {
		u.slots = l
	}
	if f.residentOurs, f.promised, err = residents(s, ours); err != nil {
		return u, err
	}
	if f.hostCPUs, err = read(s, "node info", func(l *golibvirt.Libvirt) (int, error) {
		_, _, cpus, _, _, _, _, _, err := l.NodeGetInfo()
		return int(cpus), err
	}); err != nil {
		return u, err
	}
	if f.diskFree, err = p.free(s); err != nil {
		return u, err
	}
	if f.memAvailable, err = b.memAvailable(s); err != nil {
		return u, err
	}
	u.total = count(f, b.host.Limits)
	return u, nil
}

// residents adds up, over all running guests in one call, what ours hold and what others
// may still take, in MiB.
func residents(s *session, ours map[string]bool) (resident, promised int64, err error) {
	records, err := read(s, "domain stats", func(l *golibvirt.Libvirt) ([]golibvirt.DomainStatsRecord, error) {
		return l.ConnectGetAllDomainStats(nil, uint32(golibvirt.DomainStatsBalloon),
			uint32(golibvirt.ConnectGetAllDomainsStatsActive|golibvirt.ConnectGetAllDomainsStatsNowait))
	})
	if err != nil {
		return 0, 0, err
	}
	for _, r := range records {
		rss, current := number(r.Params, "balloon.rss"), number(r.Params, "balloon.current")
		if ours[r.Dom.Name] {
			resident += rss >> 10
		} else {
			promised += max(current-rss, 0) >> 10
		}
	}
	return resident, promised, nil
}

// number finds a statistic, 0 where it is missing.
func number(params []golibvirt.TypedParam, field string) int64 {
	for _, p := range params {
		if p.Field != field {
			continue
		}
		switch v := p.Value.I.(type) {
		case int32:
			return int64(v)
		case uint32:
			return int64(v)
		case int64:
			return v
		case uint64:
			return int64(v)
		}
	}
	return 0
}

// memAvailable is what the hypervisor could give to a new program, in MiB.
func (b *Backend) memAvailable(s *session) (int64, error) {
	if !b.cfg.Remote() {
		return memAvailable("/proc/meminfo")
	}
	stats, err := read(s, "read memory", func(l *golibvirt.Libvirt) ([]golibvirt.NodeGetMemoryStats, error) {
		_, n, err := l.NodeGetMemoryStats(0, allCells, 0)
		if err != nil {
			return nil, err
		}
		stats, _, err := l.NodeGetMemoryStats(n, allCells, 0)
		return stats, err
	})
	if err != nil {
		return 0, err
	}
	return freeable(stats), nil
}

// allCells asks for the memory of the whole machine. Source: VIR_NODE_MEMORY_STATS_ALL_CELLS
// in include/libvirt/libvirt-host.h.
const allCells = -1

// freeable adds up what libvirt tells of memory, in MiB: what is free, and what the kernel
// keeps of files. libvirt does not tell which part of that cannot be given up, so this is
// somewhat more than MemAvailable.
func freeable(stats []golibvirt.NodeGetMemoryStats) (mib int64) {
	for _, st := range stats {
		switch st.Field {
		case "free", "buffers", "cached": // KiB
			mib += int64(st.Value >> 10)
		}
	}
	return mib
}

// memAvailable reads what the kernel could give to a new program, in MiB.
func memAvailable(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, backends.Wrap(backends.ErrTransient, "read memory", err, "%s", path)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) == 3 && string(fields[0]) == "MemAvailable:" && string(fields[2]) == "kB" {
			n, err := strconv.ParseInt(string(fields[1]), 10, 64)
			if err == nil {
				return n >> 10, nil
			}
		}
	}
	return 0, backends.Errorf(backends.ErrTransient, "read memory", "%s has no MemAvailable", path)
}

// admitted are the requirements of instances that were admitted and may have no marker yet.
func (b *Backend) admitted() map[string]requirement {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.pending)
}

// admit reserves what uid needs, or says what is missing. before is what was admitted before
// u was read: a marker that was written meanwhile is then counted once, in one or the other.
// release ends the reservation, once a marker counts it or nothing was made.
func (b *Backend) admit(u usage, before map[string]requirement, uid string, need requirement) (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken, used := u.taken, u.used
	maps.Copy(before, b.pending)
	for other, p := range before {
		if other != uid && !u.counted[other] {
			taken, used = taken.plus(p), used+1
		}
	}
	lack := func(what string, need, have int64, unit string) error {
		return backends.Errorf(backends.ErrNoCapacity, "check capacity", "%s: %d %s are needed, %d are left for proxies on this host", what, need, unit, max(have, 0))
	}
	left := requirement{u.total.vcpus - taken.vcpus, u.total.memoryMiB - taken.memoryMiB, u.total.diskBytes - taken.diskBytes}
	switch {
	case u.slots >= 0 && used >= u.slots && !u.counted[uid]:
		return nil, backends.Errorf(backends.ErrNoCapacity, "check capacity", "this host's %d slots are taken", u.slots)
	case need.vcpus > left.vcpus:
		return nil, lack("processors", int64(need.vcpus), int64(left.vcpus), "vCPUs")
	case need.memoryMiB > left.memoryMiB:
		return nil, lack("memory", int64(need.memoryMiB), int64(left.memoryMiB), "MiB")
	case need.diskBytes > left.diskBytes:
		return nil, lack("disk", need.diskBytes>>30, left.diskBytes>>30, "GiB")
	}
	b.pending[uid] = need
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.pending, uid)
	}, nil
}
