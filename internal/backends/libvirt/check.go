package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"

	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
)

// lowSpace is where a pool is told to be nearly full.
const lowSpace = 5 << 30

// Check implements [backends.Backend], with a target each for the daemon, the pool, the
// network, the host and what guests have in common. It has a connection of its own, made
// with the credentials of now.
func (b *Backend) Check(ctx context.Context) []backends.TargetHealth {
	var own []backends.TargetHealth
	if !b.cfg.Remote() {
		own = []backends.TargetHealth{checkTools(), checkClock()}
	}
	s, err := b.openFresh(ctx)
	if err != nil {
		return append([]backends.TargetHealth{verdict("libvirtd", err)}, own...)
	}
	defer s.close()
	return append([]backends.TargetHealth{
		b.checkDaemon(s), b.checkPool(s), b.checkNetwork(s), checkHost(s), b.checkAddresses(),
	}, own...)
}

// verdict turns an error into the code of a check.
func verdict(target string, err error) backends.TargetHealth {
	h := backends.TargetHealth{Target: target, Code: backends.CheckOK, Details: map[string]string{}}
	if err == nil {
		return h
	}
	h.Message = err.Error()
	var why *coded
	switch {
	case backends.Ended(err):
		h.Code = backends.CheckTimeout
	case errors.As(err, &why):
		h.Code = why.code
	case hasCode(err, golibvirt.ErrNoStoragePool):
		h.Code = backends.CheckPoolNotFound
	case hasCode(err, golibvirt.ErrNoNetwork):
		h.Code = backends.CheckNetworkNotFound
	case isAnswer(err) && errors.Is(err, backends.ErrHostFault), errors.Is(err, unix.EACCES):
		h.Code = backends.CheckForbidden
	case isAnswer(err):
		h.Code = backends.CheckAPIError
	default:
		h.Code = backends.CheckUnreachable
	}
	return h
}

func (b *Backend) checkDaemon(s *session) backends.TargetHealth {
	var lib, qemu uint64
	err := s.do("read versions", readBudget, 0, func(l *golibvirt.Libvirt) (err error) {
		if lib, err = l.ConnectGetLibVersion(); err == nil {
			qemu, err = l.ConnectGetVersion()
		}
		return err
	})
	h := verdict("libvirtd", err)
	if err != nil {
		return h
	}
	h.Details["libvirt"], h.Details["qemu"] = version(lib), version(qemu)
	v, err := b.virt(s)
	if err != nil {
		h.Code, h.Message = backends.CheckVirtUnavailable, err.Error()
		return h
	}
	h.Details["virtType"], h.Details["cpuMode"] = v.kind, v.cpu
	if v.whyNot != nil {
		h.Details["whyNotKVM"] = v.whyNot.Error()
	}
	return h
}

// version writes libvirt's number as people know it: 9000000 is 9.0.0.
func version(n uint64) string { return fmt.Sprintf("%d.%d.%d", n/1000000, n/1000%1000, n%1000) }

func (b *Backend) checkPool(s *session) backends.TargetHealth {
	target := "pool/" + b.cfg.StoragePool
	p, err := b.anyPool(s)
	h := verdict(target, err)
	if err != nil {
		if h.Code == backends.CheckUnreachable && errors.Is(err, backends.ErrHostFault) {
			h.Code = backends.CheckStorageNotFound
		}
		return h
	}
	h.Details["type"] = p.kind
	if !p.active {
		h.Code, h.Message = backends.CheckPoolNotActive, "the pool is not active; start it (virsh pool-start) once its target is mounted"
		return h
	}
	if p.dir != "" {
		h.Details["directory"] = p.dir
		if err := unix.Access(p.dir, unix.W_OK|unix.X_OK); err != nil {
			h.Code, h.Message = backends.CheckForbidden, "the agent may not write to the pool's directory: "+err.Error()
			return h
		}
	}
	u, err := b.usage(s, p.storage)
	if err != nil {
		return verdict(target, err)
	}
	free, err := p.storage.free(s)
	if err != nil {
		return verdict(target, err)
	}
	h.Details["freeGiB"] = strconv.FormatInt(free>>30, 10)
	h.Details["diskGiB"] = strconv.FormatInt(u.total.diskBytes>>30, 10)
	h.Details["diskTakenGiB"] = strconv.FormatInt(u.taken.diskBytes>>30, 10)
	h.Details["memoryMiB"] = strconv.Itoa(u.total.memoryMiB)
	h.Details["memoryTakenMiB"] = strconv.Itoa(u.taken.memoryMiB)
	if free < lowSpace {
		h.Code, h.Message = backends.CheckLowSpace, fmt.Sprintf("%d MiB are free; guests are paused when their disks cannot grow", free>>20)
	}
	return h
}

// checkTools looks for the programs that are run.
func checkTools() backends.TargetHealth {
	h := backends.TargetHealth{Target: "tools", Code: backends.CheckOK}
	for _, tool := range []string{"qemu-img", "prlimit"} {
		if _, err := exec.LookPath(tool); err != nil {
			h.Code, h.Message = backends.CheckAPIError, tool+" is not installed (Debian: qemu-utils, util-linux)"
		}
	}
	return h
}
