//go:build pve || proxmox_real

package proxmox

import (
	"slices"
	"strconv"
	"strings"
	"testing"

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

func TestWhatATokenMayNotSeeIsNotGone(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	all := pvefake.MinimalPrivileges(r.c.Version())[0].Privileges
	r.c.SetGrants("proxyfleet@pve", pvefake.Grant{Path: "/", Privileges: slices.DeleteFunc(slices.Clone(all), func(p string) bool { return p == "VM.Audit" })})
	_, err := r.b.Get(r.ctx(), req.Ref)
	r.expect(err, backends.ErrHostFault, "VM.Audit")
	_, err = r.ensure(req)
	r.expect(err, backends.ErrHostFault, "VM.Audit")
	r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrHostFault, "VM.Audit")
	if l := r.list(r.b); len(l.Unread) == 0 || len(l.Leftovers) != 0 {
		t.Errorf("got %+v, want that it says that it does not see", l)
	}
	r.c.SetGrants("proxyfleet@pve", pvefake.MinimalPrivileges(r.c.Version())...)
	if i, err := r.b.Get(r.ctx(), req.Ref); err != nil || !strings.HasPrefix(i.ID, strconv.Itoa(vm.ID)+"/") {
		t.Errorf("got %+v, %v", i, err)
	}
	r.mustDelete(req.Ref)
}

func TestASeedOnTheStorageOfBeforeIsRemovedWithItsVM(t *testing.T) {
	r := newRig(t, pvefake.Options{}, func(c *Config, _ *backends.HostConfig) { c.SeedStorage = "local" })
	req := r.request()
	r.mustEnsure(req)
	r.conf.SeedStorage = "shared"
	r.b = r.open()
	r.mustEnsure(req)
	r.mustDelete(req.Ref)
}

func TestAVMThatSomebodyStartsInTheMiddleOfADeleteIsStoppedAgain(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	once := false
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if q.Method == "DELETE" && q.Template == "/nodes/{node}/qemu/{vmid}" && !once {
			once = true
			return pvefake.Action{Before: func() { r.c.SetRunning(vm.ID, true) }}
		}
		return pvefake.Action{}
	})
	r.mustDelete(req.Ref)
}
