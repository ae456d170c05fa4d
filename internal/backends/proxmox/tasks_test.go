//go:build pve || proxmox_real

package proxmox

import (
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

func TestATaskThatFailsReachesTheErrorAndIsDoneAgain(t *testing.T) {
	makes, removes := []string{"qmclone", "imgcopy", "resize", "qmstart"}, []string{"qmstop", "qmdestroy", "imgdel"}
	for _, typ := range append(makes, removes...) {
		for name, c := range map[string]struct {
			exit  string
			class error
		}{
			"for an unknown reason":    {"command 'frob' failed: exit code 1", backends.ErrTransient},
			"for a lock":               {"can't lock file '/var/lock/qemu-server/lock-1.conf' - got timeout", backends.ErrTransient},
			"for lack of space":        {"cp: error writing 'x': No space left on device", backends.ErrNoCapacity},
			"for lack of a privilege":  {"Permission check failed (/storage/shared, Datastore.AllocateSpace)", backends.ErrHostFault},
			"because something is not": {"volume 'shared:9000/x' does not exist", backends.ErrTransient},
		} {
			t.Run(typ+" "+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, pvefake.Options{})
				req := r.request()
				deleting := strings.Contains(strings.Join(removes, " "), typ)
				if deleting {
					r.mustEnsure(req)
				}
				r.c.InjectTask(pvefake.TaskFault{Type: typ, Exit: c.exit, Times: 1})
				var err error
				if deleting {
					err = r.b.Delete(r.ctx(), req.Ref)
				} else {
					_, err = r.ensure(req)
				}
				r.expect(err, c.class, c.exit, "TASK ERROR", typ)
				if !deleting {
					r.mustEnsure(req)
				}
				r.mustDelete(req.Ref)
			})
		}
	}
}

func TestATaskThatWarnsIsASuccessWhoseWorkIsReadBack(t *testing.T) {
	for _, typ := range []string{"qmclone", "imgcopy", "resize", "qmstart", "qmstop", "qmdestroy", "imgdel"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pvefake.Options{})
			r.c.InjectTask(pvefake.TaskFault{Type: typ, Exit: "WARNINGS: 1", Late: true})
			req := r.request()
			_, vm := r.mustEnsure(req)
			if !vm.Running || !strings.Contains(vm.Config["scsi0"], "size=4G") {
				t.Errorf("got %+v", vm)
			}
			r.mustDelete(req.Ref)
			if typ != "imgdel" && !strings.Contains(r.said.String(), "ended with warnings") {
				t.Error("the warnings were not logged")
			}
		})
	}
}

func TestATaskThatNobodyKnowsAnyMoreIsJudgedByWhatItDid(t *testing.T) {
	for _, typ := range []string{"qmclone", "imgcopy", "resize", "qmstart", "qmstop", "qmdestroy", "imgdel"} {
		t.Run(typ, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pvefake.Options{})
			r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
				if strings.Contains(q.Path, ":"+typ+":") && strings.HasSuffix(q.Path, "/status") && r.running(typ) == 0 {
					return pvefake.Action{Reply: &pvefake.Reply{Status: 400, Text: "Parameter verification failed.", Errors: map[string]string{"upid": "no such task"}}}
				}
				return pvefake.Action{}
			})
			req := r.request()
			r.mustEnsure(req)
			r.mustDelete(req.Ref)
		})
	}
}

func TestACloneTellsHowFarItIs(t *testing.T) {
	r := newRig(t, pvefake.Options{}, func(c *Config, _ *backends.HostConfig) { c.CloneMode, c.Storage = "full", "shared" })
	r.c.SetTaskDuration("qmclone", 40*time.Second)
	most := 0
	_, err := r.b.Ensure(r.ctx(), r.request(), func(p backends.Progress) {
		if p.Step == "cloning template" {
			most = max(most, p.Percent)
		}
	})
	r.expect(err, nil)
	if most < 1 {
		t.Error("no percentage was told")
	}
}

func TestDisksOfAVMIDThatIsUsedAgainAreNotTouched(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.InjectTask(pvefake.TaskFault{Type: "qmdestroy", Exit: "WARNINGS: 1", Late: true})
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if strings.Contains(q.Path, ":qmdestroy:") && strings.HasSuffix(q.Path, "/log") {
			return pvefake.Action{Before: func() {
				r.c.OnRequest(nil)
				r.c.AddVM(pvefake.VMSpec{ID: vm.ID, Name: "precious", Storage: "shared"})
			}}
		}
		return pvefake.Action{}
	})
	r.mustDelete(req.Ref)
	v, _ := r.c.VM(vm.ID)
	if _, there := r.c.Volume("pve1", volumeOf(v.Config["scsi0"])); !there {
		t.Error("the disk of somebody's VM is gone")
	}
	if n := r.c.Count("DELETE", "/nodes/{node}/storage/{storage}/content/{volume}"); n != 1 {
		t.Errorf("%d volumes were removed, want the seed alone", n)
	}
}
