package proxmox

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

var idRange = VMIDRange{Min: 100000, Max: 199999}

func TestATakenVMIDIsProbedPastWithoutWaitingForItsLock(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	first, second, third := vmid(req.UID, 0, idRange), vmid(req.UID, 1, idRange), vmid(req.UID, 2, idRange)
	r.c.AddVM(pvefake.VMSpec{ID: first, Name: "somebody"})
	r.c.SetLock(first, "backup")
	// The second is taken between our look and our clone, and shows no name yet.
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if q.Template == "/nodes/{node}/qemu/{vmid}/clone" {
			if _, there := r.c.VM(second); !there {
				return pvefake.Action{Before: func() { r.c.AddVM(pvefake.VMSpec{ID: second, Name: "faster"}) }}
			}
		}
		return pvefake.Action{}
	})
	if _, vm := r.mustEnsure(req); vm.ID != third {
		t.Errorf("got VM %d, want %d", vm.ID, third)
	}
	r.mustDelete(req.Ref)
	for _, id := range []int{first, second} {
		if _, there := r.c.VM(id); !there {
			t.Errorf("VM %d of somebody is gone", id)
		}
	}
}

func TestAVMIDThatSomebodyUsesAgainIsLeftAlone(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.RemoveVM(vm.ID)
	r.c.AddVM(pvefake.VMSpec{ID: vm.ID, Name: "precious", Running: true})
	_, err := r.b.Get(r.ctx(), req.Ref)
	r.expect(err, backends.ErrNotFound)
	r.c.RefreshStats()
	if _, again := r.mustEnsure(req); again.ID == vm.ID {
		t.Error("the VM was made over another's")
	}
	r.mustDelete(req.Ref)
	if v, ok := r.c.VM(vm.ID); !ok || !v.Running || v.Name != "precious" {
		t.Errorf("the other's VM: got %+v", v)
	}
}

func TestAVMThatIsReplacedInTheMiddleOfADeleteIsLeftAlone(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if strings.HasSuffix(q.Path, "/status/stop") {
			return pvefake.Action{After: func() {
				r.c.OnRequest(nil)
				r.wait("it is stopped", func() bool { return r.running("qmstop") == 0 })
				r.c.RemoveVM(vm.ID)
				r.c.AddVM(pvefake.VMSpec{ID: vm.ID, Name: "precious"})
			}}
		}
		return pvefake.Action{}
	})
	r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrConflict, "precious", "left alone")
	if v, ok := r.c.VM(vm.ID); !ok || v.Name != "precious" {
		t.Errorf("the other's VM: got %+v", v)
	}
	r.mustDelete(req.Ref)
}

func TestAVMThatMigratesIsFoundAgain(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	moves := 0
	move := func(q pvefake.Request) pvefake.Action {
		if strings.Contains(q.Path, "/qemu/") && q.Method == "GET" && moves < 4 {
			if moves++; moves%2 == 1 {
				return pvefake.Action{Before: func() {
					v, _ := r.c.VM(vm.ID)
					r.c.MoveVM(vm.ID, map[string]string{"pve1": "pve2", "pve2": "pve1"}[v.Node])
				}}
			}
		}
		return pvefake.Action{}
	}
	r.c.OnRequest(move)
	if i, err := r.b.Get(r.ctx(), req.Ref); err != nil || i.Mark.UID != req.UID {
		t.Errorf("get: got %+v, %v", i, err)
	}
	moves = 0
	req.Desired = backends.Stopped
	r.mustEnsure(req)
	moves = 0
	r.mustDelete(req.Ref)
}

func TestTwoVMsOfOneNameAreAConflict(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.AddVM(pvefake.VMSpec{ID: 500, Name: vm.Name, Node: "pve2", Config: map[string]string{"description": vm.Config["description"]}})
	r.c.RefreshStats()
	_, err := r.ensure(req)
	r.expect(err, backends.ErrConflict, "VM 500", "by hand")
	r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrConflict)
	r.c.RemoveVM(500)
	r.mustDelete(req.Ref)
}

func TestACopyOfOursWithAnotherNameIsNotOurs(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	// A copy keeps notes, tags and the seed in its drive.
	copied := map[string]string{"description": vm.Config["description"], "tags": vm.Config["tags"], "ide2": vm.Config["ide2"]}
	r.c.AddVM(pvefake.VMSpec{ID: 500, Name: "Copy-of-VM-" + vm.Name, Config: copied})
	r.c.RefreshStats()
	if l := r.list(r.b); len(l.Instances) != 1 || len(l.Leftovers) != 0 {
		t.Errorf("got %+v, want ours alone", l)
	}
	r.mustEnsure(req)
	r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrConflict, "drive of VM 500", "take it out")
	if _, ok := r.c.VM(500); !ok {
		t.Error("the copy was removed")
	}
	if l := r.list(r.b); len(l.Leftovers) != 1 || l.Leftovers[0].Kind != "seed" {
		t.Errorf("got %+v, want the seed as left over", l)
	}
	r.c.RemoveVM(500)
	r.mustDelete(req.Ref)
}

func TestARenamedVMIsAConflictAndNotGone(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.RemoveVM(vm.ID)
	r.c.AddVM(pvefake.VMSpec{ID: vm.ID, Name: "my-proxy", Config: map[string]string{"description": vm.Config["description"], "tags": vm.Config["tags"]}})
	r.c.RefreshStats()
	for name, b := range map[string]*Backend{"the same agent": r.b, "the next": r.open()} {
		_, err := b.Get(r.ctx(), req.Ref)
		r.expect(err, backends.ErrConflict, "is not named", "give it its name back")
		r.expect(b.Delete(r.ctx(), req.Ref), backends.ErrConflict)
		t.Log(name)
	}
	r.c.RemoveVM(vm.ID)
	r.mustDelete(req.Ref)
}

func TestAProtectedVMIsKept(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	r.c.RemoveVM(vm.ID)
	conf := map[string]string{"description": vm.Config["description"], "protection": "1"}
	r.c.AddVM(pvefake.VMSpec{ID: vm.ID, Name: vm.Name, Config: conf, Running: true})
	r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrConflict, "protected")
	if v, ok := r.c.VM(vm.ID); !ok || !v.Running {
		t.Error("it was stopped or removed")
	}
	r.c.RemoveVM(vm.ID)
	r.mustDelete(req.Ref)
}

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
	for name, lost := range map[string]bool{"with its record": false, "whose record was lost": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, pvefake.Options{})
			req, other := r.request(), r.request()
			r.left(other, time.Hour)
			r.left(req, time.Hour)
			if lost {
				if err := os.RemoveAll(stateDir(r.host, r.owner)); err != nil {
					t.Fatal(err)
				}
			}
			r.mustDelete(req.Ref)
			if n := r.running("qmclone"); n != 1 {
				t.Errorf("%d clones run, want the other one", n)
			}
		})
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

func TestSeedsAreFoundOnEveryNodeAndThoseOfOthersStay(t *testing.T) {
	r := newRig(t, pvefake.Options{}, func(c *Config, hc *backends.HostConfig) {
		c.SeedStorage = "local"
	})
	ref := backends.Ref{Proxy: "crawl-1", UID: newID()}
	other := backends.Owner{Installation: r.owner.Installation, HostID: newID()}
	r.c.AddISO("pve1", "local", seedName(r.owner, ref), []byte("x"))
	r.c.AddISO("pve2", "local", seedName(r.owner, ref), []byte("x"))
	theirs := r.c.AddISO("pve2", "local", seedName(other, ref), []byte("x"))
	plain := r.c.AddISO("pve2", "local", "debian.iso", []byte("x"))
	l := r.list(r.b)
	if len(l.Leftovers) != 2 || len(l.Instances) != 0 || len(l.Unread) != 0 {
		t.Fatalf("got %+v, want two seeds", l)
	}
	for _, x := range l.Leftovers {
		if x.Kind != "seed" || x.Mark.UID != ref.UID || x.Mark.Proxy != ref.Proxy || !x.Mark.Owned(r.owner) || x.Mark.CreatedAt.IsZero() {
			t.Errorf("got %+v", x)
		}
	}
	r.c.NodeDown("pve2", true)
	r.expect(r.b.Delete(r.ctx(), ref), backends.ErrTransient, "pve2", "not known")
	r.c.NodeDown("pve2", false)
	if err := r.b.Delete(r.ctx(), ref); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.c.Volumes("pve1", "local"), " "); got != "" {
		t.Errorf("left on pve1: %s", got)
	}
	for _, v := range []string{theirs, plain} {
		if _, there := r.c.Volume("pve2", v); !there {
			t.Errorf("%s is gone", v)
		}
	}
}
