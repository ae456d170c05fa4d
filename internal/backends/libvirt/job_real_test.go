//go:build real

package libvirt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
)

// TestAJobOfLibvirtsIsToldAndNotFought has somebody copy or back up a guest's disk, which goes
// on until they end it, and asks for everything that would end it.
func TestAJobOfLibvirtsIsToldAndNotFought(t *testing.T) {
	h := startHost(t)
	for name, c := range map[string]struct {
		begin func(n string)
		end   []string
	}{
		"block copy": {func(n string) {
			h.Virsh(t, "blockcopy", n, rootTarget, h.Dir+"/copy", "--transient-job")
		}, []string{"blockjob", "", rootTarget, "--abort"}},
		"backup": {func(n string) {
			must(t, os.Mkdir(h.Dir+"/backup", 0o700))
			must(t, os.Chmod(h.Dir+"/backup", 0o777)) // for QEMU's user
			file := filepath.Join(t.TempDir(), "backup.xml")
			must(t, os.WriteFile(file, []byte("<domainbackup mode='pull'><server transport='unix' socket='"+h.Dir+"/backup/nbd'/><disks>"+
				"<disk name='vdb' type='file'><scratch file='"+h.Dir+"/backup/scratch'/></disk><disk name='"+rootTarget+"' backup='no'/></disks></domainbackup>"), 0o600))
			h.Virsh(t, "backup-begin", n, file)
		}, []string{"domjobabort", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(newRef())
			n := backends.InstanceName(req.UID)
			h.ensure(t, req)
			id := h.Virsh(t, "domid", n)
			c.begin(n)
			if i := h.get(t, req.Ref); i.Status != backends.StatusRunning || i.Reason != "JobRunning" || !strings.Contains(i.Message, name) {
				t.Errorf("got %+v, want it running, with the job named", i)
			}
			h.ensure(t, req)
			same := req
			same.Generation = 2
			h.ensure(t, same)
			refused := func(what string, err error) {
				t.Helper()
				wantClass(t, err, backends.ErrTransient)
				if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "virsh "+c.end[0]) {
					t.Errorf("%s: %v; want the job named, and how to end it", what, err)
				}
			}
			for what, change := range map[string]func(*backends.Request){
				"a larger disk":        func(r *backends.Request) { r.DiskGiB++ },
				"another machine type": func(r *backends.Request) { r.MachineType = "large" },
				"stopped":              func(r *backends.Request) { r.Desired = backends.Stopped },
			} {
				other := req
				other.Generation = 3
				change(&other)
				_, err := h.Ensure(t.Context(), other, nil)
				refused(what, err)
			}
			refused("deleted", h.Delete(t.Context(), req.Ref))
			if now := h.Virsh(t, "domid", n); now != id {
				t.Errorf("the guest was switched off: domain id %s, then %s", id, now)
			}
			c.end[1] = n
			h.Virsh(t, c.end...)
			req.Generation, req.DiskGiB = 4, 2
			if i := h.ensure(t, req); i.Generation != 4 {
				t.Errorf("once it has ended: %+v", i)
			}
			if i := h.get(t, req.Ref); i.Reason != "" {
				t.Errorf("once it has ended: %+v", i)
			}
			h.delete(t, req.Ref)
		})
	}
}

func TestAPausedGuestIsNotStartedAnewWhileAJobIsAtIt(t *testing.T) {
	d := startDaemon(t)
	h := remoteHost(t, d, Config{URI: d.URI(), VirtType: "qemu", Repair: Repair{Paused: Restart}})
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	h.Virsh(t, "blockcopy", n, rootTarget, h.Dir+"/copy", "--transient-job")
	h.Virsh(t, "suspend", n)
	id := h.Virsh(t, "domid", n)
	_, err := h.Ensure(t.Context(), req, nil)
	wantClass(t, err, backends.ErrTransient)
	if now := h.Virsh(t, "domid", n); now != id {
		t.Error("it was started anew")
	}
	h.Virsh(t, "blockjob", n, rootTarget, "--abort")
	if i := h.ensure(t, req); i.Status != backends.StatusRunning || h.Virsh(t, "domid", n) == id {
		t.Errorf("once the job has ended: %+v", i)
	}
	h.delete(t, req.Ref)
}
