//go:build real

package libvirt

import (
	"os"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
)

func TestAGuestThatWasPausedIsTold_AndResumed(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	h.Virsh(t, "suspend", n)
	if i := h.get(t, req.Ref); i.Status != backends.StatusPaused || i.Reason != "PausedByUser" {
		t.Errorf("got %+v, want Paused", i)
	}
	if i := h.ensure(t, req); i.Status != backends.StatusRunning {
		t.Errorf("resumed: %+v", i)
	}
	h.Virsh(t, "suspend", n)
	req.Desired = backends.Stopped
	if i := h.ensure(t, req); i.Status != backends.StatusStopped {
		t.Errorf("stopped out of a pause: %+v", i)
	}
	h.delete(t, req.Ref)
}

func TestAGuestIsLeftToAPersonWhereThatIsConfigured(t *testing.T) {
	d := startDaemon(t)
	h := remoteHost(t, d, Config{URI: d.URI(), VirtType: "qemu", Repair: Repair{Stopped: Report, Paused: Report}})
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	for _, c := range []struct{ spoil, mend string }{{"suspend", "resume"}, {"destroy", "start"}} {
		h.Virsh(t, c.spoil, n)
		before := h.Virsh(t, "domstate", n)
		_, err := h.Ensure(t.Context(), req, nil)
		wantClass(t, err, backends.ErrConflict)
		if after := h.Virsh(t, "domstate", n); after != before {
			t.Errorf("%s: it went from %s to %s", c.spoil, before, after)
		}
		h.Virsh(t, c.mend, n)
		h.ensure(t, req)
	}
	req.Generation, req.Desired = 2, backends.Stopped
	h.ensure(t, req)
	req.Generation, req.Desired = 3, backends.Running
	if i := h.ensure(t, req); i.Status != backends.StatusRunning {
		t.Errorf("stopped and started again as asked: %+v", i)
	}
	h.delete(t, req.Ref)
}

func TestAGuestThatWasMigratedAwayIsNotMadeASecondTime(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	h.Virsh(t, "destroy", n)
	h.Virsh(t, "undefine", n)
	h.guests.left(req.UID, true) // as the watcher does: one daemon cannot migrate to itself
	_, err := h.Ensure(t.Context(), req, nil)
	wantClass(t, err, backends.ErrConflict)
	if _, err := h.TryVirsh("dominfo", n); err == nil {
		t.Error("it was made again")
	}
	h.delete(t, req.Ref)
	h.ensure(t, req)
	h.delete(t, req.Ref)
}

func TestASavedGuestStartsFreshAndItsImageIsGone(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	h.Virsh(t, "managedsave", n)
	if i := h.get(t, req.Ref); i.Status != backends.StatusStopped || i.Reason != "Saved" {
		t.Errorf("got %+v, want Stopped, Saved", i)
	}
	h.ensure(t, req)
	if info := h.Virsh(t, "dominfo", n); !strings.Contains(info, "Managed save:   no") {
		t.Errorf("the saved image is still there:\n%s", info)
	}
	h.Virsh(t, "managedsave", n)
	h.delete(t, req.Ref)
}

func TestAGuestWithSnapshotsIsDeletedWithThem(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	req.Desired = backends.Stopped
	h.ensure(t, req)
	h.Virsh(t, "snapshot-create-as", backends.InstanceName(req.UID), "kept", "--diskspec", "vda,snapshot=internal", "--diskspec", "vdb,snapshot=no")
	h.delete(t, req.Ref)
}

func TestAGuestWhoseDiskIsASnapshotsIsNotSetBackToTheOneBefore(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	overlay := h.PoolDir() + "/" + n + ".before-update"
	snapshot := func() {
		t.Helper()
		h.Virsh(t, "snapshot-create-as", n, "before-update", "--no-metadata", "--disk-only", "--diskspec", "vda,file="+overlay, "--diskspec", "vdb,snapshot=no")
	}
	snapshot()
	h.ensure(t, req) // it runs
	larger := req
	larger.Generation, larger.DiskGiB = 2, 3
	refused := func(what string, req backends.Request) {
		t.Helper()
		_, err := h.Ensure(t.Context(), req, nil)
		wantClass(t, err, backends.ErrConflict)
		if err == nil || !strings.Contains(err.Error(), overlay) {
			t.Errorf("%s: %v, want the file named", what, err)
		}
	}
	refused("a larger disk", larger)
	h.Virsh(t, "destroy", n)
	refused("switched off", req)
	if xml := h.Virsh(t, "dumpxml", n); !strings.Contains(xml, "'"+overlay+"'") {
		t.Errorf("it was defined anew:\n%s", xml)
	}
	h.Virsh(t, "start", n)
	h.Virsh(t, "blockcommit", n, "vda", "--active", "--shallow", "--pivot", "--wait")
	if i := h.ensure(t, larger); i.Generation != 2 {
		t.Errorf("merged: %+v", i)
	}
	must(t, os.Remove(overlay)) // libvirt leaves it
	snapshot()
	h.delete(t, req.Ref)
}

func TestAGuestThatWasUndefinedWhileItRunsIsDefinedAgain(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	n := backends.InstanceName(req.UID)
	before := h.ensure(t, req)
	h.Virsh(t, "undefine", n)
	if i := h.get(t, req.Ref); i.Status != backends.StatusRunning {
		t.Errorf("got %+v, want Running", i)
	}
	if i := h.ensure(t, req); i.ID != before.ID {
		t.Errorf("got %+v, want the same guest", i)
	}
	if info := h.Virsh(t, "dominfo", n); !strings.Contains(info, "Persistent:     yes") || !strings.Contains(info, "Autostart:      disable") {
		t.Errorf("want it defined, and not started by libvirt itself:\n%s", info)
	}
	h.Virsh(t, "undefine", n)
	h.delete(t, req.Ref)
}

func TestADomainThatWasRenamedIsNotMadeTwice(t *testing.T) {
	h := startHost(t)
	req := request(newRef())
	req.Desired = backends.Stopped
	n := backends.InstanceName(req.UID)
	h.ensure(t, req)
	h.Virsh(t, "domrename", n, "mine")
	_, err := h.Ensure(t.Context(), req, nil)
	wantClass(t, err, backends.ErrConflict)
	wantClass(t, h.Delete(t.Context(), req.Ref), backends.ErrConflict)
	h.Virsh(t, "domrename", "mine", n)
	h.ensure(t, req)
	h.delete(t, req.Ref)
}
