//go:build pve || proxmox_real

package proxmox

import (
	"context"
	"os"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

// left starts an Ensure whose clone takes so long (of the nodes' time), and leaves it as a
// killed agent does.
func (r *rig) left(req backends.Request, takes time.Duration) {
	r.Helper()
	r.c.SetTaskDuration("qmclone", takes)
	ctx, cancel := context.WithCancel(r.ctx())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = r.b.Ensure(ctx, req, nil)
	}()
	r.wait("the clone runs", func() bool { return r.running("qmclone") > 0 })
	r.wait("its task is on record", func() bool { rec, ok, _ := r.b.records.get(req.UID); return ok && rec.Task != "" })
	cancel()
	<-ended
	r.b = r.open()
}

func TestACloneUnderWayIsFollowedByTheNextAgent(t *testing.T) {
	for name, lost := range map[string]bool{"with its record": false, "whose record was lost": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pvefake.Options{})
			req := r.request()
			r.left(req, 200*time.Second)
			if lost {
				if err := os.RemoveAll(stateDir(r.host, r.owner)); err != nil {
					t.Fatal(err)
				}
			}
			i, err := r.b.Get(r.ctx(), req.Ref)
			l := r.list(r.b)
			if lost {
				r.expect(err, backends.ErrTransient, "being cloned")
				if len(l.Unread) != 1 || len(l.Instances) != 0 {
					t.Errorf("got %+v, want it among the unread", l)
				}
			} else {
				if err != nil || i.Status != backends.StatusBroken || i.Reason != "Cloning" || i.Mark.UID != req.UID {
					t.Errorf("got %+v, %v", i, err)
				}
				if len(l.Unread) != 0 || len(l.Instances) != 1 || l.Instances[0].Reason != "Cloning" {
					t.Errorf("got %+v, want it as an instance", l)
				}
			}
			r.mustEnsure(req)
			if n := r.c.Count("POST", "/nodes/{node}/qemu/{vmid}/clone"); n != 1 {
				t.Errorf("%d clones were asked for, want one", n)
			}
			r.mustDelete(req.Ref)
		})
	}
}

func TestACloneUnderWayIsStoppedByADelete(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req, other := r.request(), r.request()
	r.left(other, time.Hour)
	r.left(req, time.Hour)
	r.mustDelete(req.Ref)
	if n := r.running("qmclone"); n != 1 {
		t.Errorf("%d clones run, want the other one", n)
	}
}

// TestACloneThatMayBeAnothersIsNotStopped deletes while a clone runs to our VMID that is on
// no record: another agent with the same token may have started it.
func TestACloneThatMayBeAnothersIsNotStopped(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	r.left(req, 100*time.Second)
	if err := os.RemoveAll(stateDir(r.host, r.owner)); err != nil {
		t.Fatal(err)
	}
	r.mustDelete(req.Ref)
	for _, task := range r.c.Tasks() {
		if task.Type == "qmclone" && task.Exit != "OK" {
			t.Errorf("the clone ended with %s", task.Exit)
		}
	}
}

func TestAStrandedCloneIsSaidWithWhatToDo(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	r.left(req, time.Hour)
	rec, _, _ := r.b.records.get(req.UID)
	// The node lost power: no task is left, and the VM is as the clone had it.
	if err := r.b.api.StopTask(r.ctx(), rec.Task); err != nil {
		t.Fatal(err)
	}
	r.wait("the clone has ended", func() bool { return r.running("qmclone") == 0 })
	r.c.ForgetTask(string(rec.Task))
	r.c.SetTaskDuration("qmclone", time.Second)
	conf := map[string]string{"name": "", "net0": "", "agent": "", "lock": "clone", "description": " qmclone temporary file"}
	r.c.AddVM(pvefake.VMSpec{ID: rec.VMID, Disk: "none", Config: conf})
	_, err := r.ensure(req)
	r.expect(err, backends.ErrTransient, "qm unlock", "no longer runs")
	r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrTransient, "qm unlock")
	if l := r.list(r.b); len(l.Instances) != 1 || l.Instances[0].Reason != "Cloning" {
		t.Errorf("got %+v", l)
	}
	r.c.RemoveVM(rec.VMID)
	r.mustEnsure(req)
	r.mustDelete(req.Ref)
}
