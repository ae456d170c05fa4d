//go:build real

package libvirt

import (
	"strings"
	"syscall"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

func TestADiskGrowsUnderItsGuestAndAMachineTypeByARestart(t *testing.T) {
	h := startHost(t)
	for _, desired := range []backends.Desired{backends.Running, backends.Stopped} {
		t.Run(string(desired), func(t *testing.T) {
			req := request(newRef())
			req.Desired = desired
			n := backends.InstanceName(req.UID)
			before := h.ensure(t, req)
			size := func() uint64 {
				t.Helper()
				info, err := images.Inspect(t.Context(), h.place().disk(n), "qcow2")
				must(t, err)
				return info.VirtualSize
			}
			id, file := strings.TrimSpace(h.Virsh(t, "domid", n)), inode(t, h.place().disk(n))
			req.Generation, req.DiskGiB = 2, 3
			if after := h.ensure(t, req); after.Generation != 2 || after.Mark != before.Mark || size() != 3<<30 {
				t.Errorf("a larger disk: %+v, %d bytes", after, size())
			}
			if now := strings.TrimSpace(h.Virsh(t, "domid", n)); now != id {
				t.Errorf("the guest was restarted for it: domain id %s, then %s", id, now)
			}
			req.Generation, req.MachineType = 3, "large"
			if after := h.ensure(t, req); after.Generation != 3 || after.Status != before.Status {
				t.Errorf("another machine type: %+v", after)
			}
			if xml := h.Virsh(t, "dumpxml", n); !strings.Contains(xml, ">98304</memory>") || !strings.Contains(xml, ">2</vcpu>") {
				t.Errorf("want 96 MiB and 2 processors:\n%s", xml)
			}
			if size() != 3<<30 || inode(t, h.place().disk(n)) != file {
				t.Errorf("the disk was made anew: %d bytes", size())
			}
			req.Generation, req.DiskGiB = 4, 2
			_, err := h.Ensure(t.Context(), req, nil)
			wantClass(t, err, backends.ErrPermanent)
			req.DiskGiB = 1 << 20
			_, err = h.Ensure(t.Context(), req, nil)
			wantClass(t, err, backends.ErrNoCapacity)
			req.DiskGiB, req.MachineType = 3, "none"
			_, err = h.Ensure(t.Context(), req, nil)
			wantClass(t, err, backends.ErrPermanent)
			if i := h.get(t, req.Ref); i.Generation != 3 || i.Status != before.Status {
				t.Errorf("after what cannot be: %+v", i)
			}
			h.delete(t, req.Ref)
		})
	}
}

func TestADiskGrowsThroughSSH(t *testing.T) {
	d, sshd := startDaemon(t), libvirttest.StartSSHD(t)
	h := remoteHost(t, d, throughSSH(d, sshd))
	for _, desired := range []backends.Desired{backends.Running, backends.Stopped} {
		req := request(newRef())
		req.Desired = desired
		n := backends.InstanceName(req.UID)
		h.ensure(t, req)
		req.Generation, req.DiskGiB = 2, 2
		if i := h.ensure(t, req); i.Generation != 2 || i.Status != map[backends.Desired]backends.Status{backends.Running: backends.StatusRunning, backends.Stopped: backends.StatusStopped}[desired] {
			t.Errorf("%s: got %+v", desired, i)
		}
		// The guest goes off and on again: a disk that does not fit would be made anew.
		file := inode(t, h.place().disk(n))
		h.ensure(t, req)
		if desired == backends.Running {
			h.Virsh(t, "destroy", n)
			h.ensure(t, req)
		}
		if inode(t, h.place().disk(n)) != file {
			t.Errorf("%s: the disk was made anew", desired)
		}
		h.Virsh(t, "pool-refresh", "default")
		if info := h.Virsh(t, "vol-info", "--bytes", "--pool", "default", n+".qcow2"); !strings.Contains(info, "2147483648") {
			t.Errorf("%s: want 2 GiB:\n%s", desired, info)
		}
		h.delete(t, req.Ref)
	}
}

func TestADiskThatDoesNotGrowIsToldAndTheGuestKept(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	id := h.Virsh(t, "domid", n)
	// QEMU grows no disk that it is copying.
	ctx := backends.WithSteps(t.Context(), func(label string) error {
		if label == "disk.grow" {
			h.Virsh(t, "blockcopy", n, rootTarget, h.Dir+"/copy", "--transient-job")
		}
		return nil
	})
	req.Generation, req.DiskGiB = 2, 3
	_, err := h.Ensure(ctx, req, nil)
	wantClass(t, err, backends.ErrTransient)
	if err == nil || !strings.Contains(err.Error(), "the disk of proxy crawl-1 was not brought from 1 to 3 GiB") || !strings.Contains(err.Error(), "block_resize") {
		t.Errorf("got %v; want what was not done, and why", err)
	}
	if i := h.get(t, req.Ref); i.Generation != 1 || i.Status != backends.StatusRunning || h.Virsh(t, "domid", n) != id {
		t.Errorf("the guest: %+v", i)
	}
	h.Virsh(t, "blockjob", n, rootTarget, "--abort")
	if i := h.ensure(t, req); i.Generation != 2 {
		t.Errorf("tried again: %+v", i)
	}
	h.delete(t, req.Ref)
}

// inode tells a file from one that was put in its place.
func inode(t testing.TB, path string) uint64 {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(path, &st))
	return st.Ino
}
