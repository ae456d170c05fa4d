//go:build pve || proxmox_real

package proxmox

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

func TestAnswersBetweenNodesAreTransientAndNeverGone(t *testing.T) {
	for _, status := range []int{595, 596, 599} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pvefake.Options{})
			req := r.request()
			_, vm := r.mustEnsure(req)
			r.c.MoveVM(vm.ID, "pve2")
			r.c.AddressDown("pve2", true)
			r.c.ProxyError("pve2", status)
			_, err := r.b.Get(r.ctx(), req.Ref)
			r.expect(err, backends.ErrTransient)
			_, err = r.ensure(req)
			r.expect(err, backends.ErrTransient)
			r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrTransient)
			l := r.list(r.open())
			if len(l.Unread) == 0 || len(l.Leftovers) > 0 {
				t.Errorf("got %+v, want the VM among the unread and nothing left over", l)
			}
			r.c.ProxyError("pve2", 0)
			r.mustDelete(req.Ref)
		})
	}
}

func TestANodeThatIsOfflineIsNamedAndItsVMIsNotGone(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req, other := r.request(), r.request()
	_, vm := r.mustEnsure(req)
	r.c.MoveVM(vm.ID, "pve2")
	_, stays := r.mustEnsure(other)
	r.c.MoveVM(stays.ID, "pve1")
	r.list(r.b)
	r.c.NodeDown("pve2", true)
	r.c.RefreshStats()
	_, err := r.b.Get(r.ctx(), req.Ref)
	r.expect(err, backends.ErrTransient, "pve2", "offline")
	for name, b := range map[string]*Backend{"warm": r.b, "new": r.open()} {
		l := r.list(b)
		if len(l.Instances) != 1 || l.Instances[0].Mark.UID != other.UID || len(l.Unread) != 1 || len(l.Leftovers) != 0 {
			t.Errorf("%s listing: got %+v, want one instance, one unread and nothing left over", name, l)
		}
	}
	r.c.NodeDown("pve2", false)
	r.c.RefreshStats()
	if i, err := r.b.Get(r.ctx(), req.Ref); err != nil || i.Mark.UID != req.UID {
		t.Errorf("after it came back: got %+v, %v", i, err)
	}
}

func TestAnotherEndpointTakesOver(t *testing.T) {
	faults := map[string]func(r *rig){
		"when an address refuses":      func(r *rig) { r.c.AddressDown("pve1", true) },
		"when its daemon is down":      func(r *rig) { r.c.DaemonDown("pve1", true); r.c.SetGuest(9000, pvefake.DefaultGuest()) },
		"when it is too slow to read":  func(r *rig) { r.slow("pve1", http.MethodGet) },
		"when it cuts what only reads": func(r *rig) { r.cut("pve1", http.MethodGet, pvefake.CutMiddle) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pvefake.Options{}, func(c *Config, hc *backends.HostConfig) {
				c.RequestTimeout = 200 * time.Millisecond
				c.Nodes = []string{"pve2"}
				hc.Images["debian-13"] = backends.Image{Template: "9001"}
			})
			r.c.AddVM(pvefake.VMSpec{ID: 9001, Name: "debian-13", Node: "pve2", Template: true, Storage: "shared"})
			fault(r)
			req := r.request()
			r.mustEnsure(req)
			if _, err := r.b.Get(r.ctx(), req.Ref); err != nil {
				t.Errorf("get: %v", err)
			}
			r.mustDelete(req.Ref)
		})
	}
}

func (r *rig) slow(node, method string) {
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if q.Node == node && q.Method == method {
			return pvefake.Action{Delay: time.Second}
		}
		return pvefake.Action{}
	})
}

func (r *rig) cut(node, method string, how pvefake.Cut) {
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if q.Node == node && q.Method == method {
			return pvefake.Action{Cut: how}
		}
		return pvefake.Action{}
	})
}

func TestWithoutAnyEndpointItIsTransient(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	r.mustEnsure(req)
	r.c.AddressDown("pve1", true)
	r.c.AddressDown("pve2", true)
	_, err := r.b.Get(r.ctx(), req.Ref)
	r.expect(err, backends.ErrTransient, "cannot be read")
	_, err = r.b.List(r.ctx())
	r.expect(err, backends.ErrTransient)
	if h := r.b.Check(r.ctx()); len(h) != 1 || h[0].Code != backends.CheckUnreachable {
		t.Errorf("check: got %+v", h)
	}
}

// TestALostAnswerNeverMakesASecondOne loses the answer of each call that changes something,
// and of each that does not arrive at all.
func TestALostAnswerNeverMakesASecondOne(t *testing.T) {
	calls := map[string]struct{ method, template string }{
		"clone":   {"POST", "/nodes/{node}/qemu/{vmid}/clone"},
		"upload":  {"POST", "/nodes/{node}/storage/{storage}/upload"},
		"config":  {"PUT", "/nodes/{node}/qemu/{vmid}/config"},
		"resize":  {"PUT", "/nodes/{node}/qemu/{vmid}/resize"},
		"start":   {"POST", "/nodes/{node}/qemu/{vmid}/status/start"},
		"stop":    {"POST", "/nodes/{node}/qemu/{vmid}/status/stop"},
		"destroy": {"DELETE", "/nodes/{node}/qemu/{vmid}"},
		"seed":    {"DELETE", "/nodes/{node}/storage/{storage}/content/{volume}"},
	}
	for name, call := range calls {
		for how, cut := range map[string]pvefake.Cut{"before it was carried out": pvefake.CutBefore, "after": pvefake.CutAfter, "in its middle": pvefake.CutMiddle} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, pvefake.Options{})
				done := false
				r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
					if !done && q.Method == call.method && q.Template == call.template {
						done = true
						return pvefake.Action{Cut: cut}
					}
					return pvefake.Action{}
				})
				req := r.request()
				_, err := r.ensure(req)
				if err == nil {
					err = r.b.Delete(r.ctx(), req.Ref)
				}
				r.expect(err, backends.ErrTransient, "not known whether it was carried out")
				r.mustEnsure(req)
				ours := 0
				for _, v := range r.c.VMs() {
					if v.Name == backends.InstanceName(req.UID) {
						ours++
					}
				}
				if ours != 1 {
					t.Errorf("%d VMs have our name, want one", ours)
				}
				r.mustDelete(req.Ref)
			})
		}
	}
}

func TestALockThatStaysIsNamedAndOneThatGoesIsWaitedFor(t *testing.T) {
	for _, lock := range []string{"backup", "snapshot", "migrate", "rollback"} {
		t.Run(lock, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pvefake.Options{})
			req := r.request()
			_, vm := r.mustEnsure(req)
			r.c.SetLock(vm.ID, lock)
			if i, err := r.b.Get(r.ctx(), req.Ref); err != nil || i.Status != backends.StatusRunning || i.Reason != "Locked" || !strings.Contains(i.Message, lock) {
				t.Errorf("get: got %+v, %v", i, err)
			}
			req.Desired = backends.Stopped
			_, err := r.ensure(req)
			r.expect(err, backends.ErrTransient, `"`+lock+`"`, "qm unlock")
			r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrTransient, `"`+lock+`"`)
			if now := mustVM(t, r.c, req.Ref); !now.Running {
				t.Error("it was stopped in spite of the lock")
			}
			go func() {
				time.Sleep(100 * time.Millisecond)
				r.c.SetLock(vm.ID, "")
			}()
			r.mustEnsure(req)
			r.mustDelete(req.Ref)
		})
	}
}

func TestALockFileThatIsHeldIsTransient(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	req.Desired = backends.Stopped
	_, vm := r.mustEnsure(req)
	release := r.c.HoldLockFile(vm.ID)
	req.Desired = backends.Running
	_, err := r.ensure(req)
	r.expect(err, backends.ErrTransient, "got timeout", "another task holds the VM's configuration")
	release()
	r.mustEnsure(req)
}

func TestAFullStorageIsNoCapacityBeforeAnythingIsMade(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	s := r.c.Storage("shared")
	s.Used = s.Total - 1<<30
	r.c.SetStorage(s)
	r.c.RefreshStats()
	req := r.request()
	_, err := r.ensure(req)
	r.expect(err, backends.ErrNoCapacity, "shared", "GiB")
	r.expectNothing(req.Ref)
	if n := r.c.Count("POST", ""); n > 0 {
		t.Errorf("%d requests changed something", n)
	}
}

func TestAHangingServerEndsWithTheContext(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	hang := make(chan struct{})
	r.c.InjectTask(pvefake.TaskFault{Type: "qmclone", Hang: hang, Times: 1})
	ctx, cancel := context.WithCancel(r.ctx())
	ended := make(chan error, 1)
	go func() {
		_, err := r.b.Ensure(ctx, req, nil)
		ended <- err
	}()
	r.wait("the clone runs", func() bool { return r.running("qmclone") == 1 })
	cancel()
	select {
	case err := <-ended:
		if !backends.Ended(err) {
			t.Errorf("got %v, want the end of the context", err)
		}
	case <-time.After(2 * time.Second):
		t.Error("it did not end")
	}
	close(hang)
	r.mustEnsure(req)
}
