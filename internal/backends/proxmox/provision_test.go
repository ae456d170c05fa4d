//go:build pve || proxmox_real

package proxmox

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

func TestACloneIsConfiguredAsAskedAndKeepsTheRest(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	r.c.AddVM(pvefake.VMSpec{ID: 9001, Name: "rich", Template: true, Storage: "shared", Config: map[string]string{
		"net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,firewall=1,mtu=1400,tag=99,link_down=1", "agent": "0,fstrim_cloned_disks=1",
		"tags": "golden", "sockets": "2", "balloon": "1024", "memory": "2048", "protection": "1", "ide2": "none,media=cdrom", "serial0": "socket",
	}})
	r.c.RefreshStats()
	r.b.host.Images["debian-13"] = backends.Image{Template: "rich"}
	req := r.request()
	_, vm := r.mustEnsure(req)
	mac := netMAC(vm.Config["net0"])
	if mac == "" || mac == "bc:24:11:00:00:01" {
		t.Errorf("the MAC is %q, want one of its own", mac)
	}
	want := map[string]string{
		"name": backends.InstanceName(req.UID), "sockets": "1", "cores": "1", "memory": "512", "onboot": "0", "balloon": "",
		"net0":  "virtio=" + strings.ToUpper(mac) + ",bridge=vmbr0,firewall=1,mtu=1400,tag=7",
		"agent": "enabled=1,fstrim_cloned_disks=1", "serial0": "socket",
		"tags": strings.Join(slices.Sorted(slices.Values([]string{"golden", "crawl", generalTag, r.b.ownerTag})), ";"),
	}
	for key, value := range want {
		if got := vm.Config[key]; got != value {
			t.Errorf("%s: got %q, want %q", key, got, value)
		}
	}
	if vm.Config["protection"] == "1" || !strings.HasPrefix(vm.Config["ide2"], r.b.seedVolume(req.Ref)+",media=cdrom") || !strings.Contains(vm.Config["scsi0"], "size=4G") {
		t.Errorf("got %v", vm.Config)
	}
	m, ok := parseMark(vm.Config["description"])
	if !ok || !m.is(req.Ref, r.owner) || m.Generation != 1 || m.Port != DefaultPort || !strings.HasPrefix(vm.Config["description"], markHead) {
		t.Errorf("mark: got %+v", m)
	}
	seed, _ := r.c.Volume(vm.Node, r.b.seedVolume(req.Ref))
	for _, part := range []string{"CD001", "instance-id\":\"" + req.UID, "#cloud-config", mac, "multipart/mixed"} {
		if !bytes.Contains(seed, []byte(part)) {
			t.Errorf("the seed does not have %q", part)
		}
	}
	if bytes.Contains(seed, []byte(r.pass)) {
		t.Error("the password stands in the seed as it is")
	}
}

func TestASeedThatWasCutOffIsNotTrusted(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if q.Method != "GET" || q.Template != "/nodes/{node}/storage/{storage}/content/{volume}" {
			return pvefake.Action{}
		}
		r.c.OnRequest(nil)
		return pvefake.Action{Before: func() { r.c.AddISO("pve1", "shared", seedName(r.owner, req.Ref), []byte("half")) }}
	})
	_, err := r.ensure(req)
	r.expect(err, backends.ErrTransient, "has 4")
	r.mustEnsure(req)
	if seed, _ := r.c.Volume("pve1", r.b.seedVolume(req.Ref)); len(seed) < 10000 {
		t.Errorf("the seed has %d bytes", len(seed))
	}
	r.mustDelete(req.Ref)
}

func TestWhatPeopleWroteIntoTheNotesStays(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	notes := vm.Config["description"] + "\n\n# For the night shift\nask Ana before touching"
	if err := r.b.api.Configure(r.ctx(), vm.Node, vm.ID, "", map[string]string{"description": notes}); err != nil {
		t.Fatal(err)
	}
	req.Generation = 5
	i, vm := r.mustEnsure(req)
	if i.Generation != 5 || !strings.Contains(vm.Config["description"], "ask Ana") || strings.Count(vm.Config["description"], markHead) != 1 {
		t.Errorf("got %d and\n%s", i.Generation, vm.Config["description"])
	}
}

func TestAConfigurationThatChangedMeanwhileIsNotOverwritten(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	req := r.request()
	_, vm := r.mustEnsure(req)
	// Between our look and our change somebody writes into the notes.
	r.c.OnRequest(func(q pvefake.Request) pvefake.Action {
		if q.Method != "PUT" || !strings.HasSuffix(q.Path, "/config") {
			return pvefake.Action{}
		}
		r.c.OnRequest(nil)
		return pvefake.Action{Before: func() {
			if err := r.b.api.Configure(r.ctx(), vm.Node, vm.ID, "", map[string]string{"description": vm.Config["description"] + "\nhello"}); err != nil {
				t.Error(err)
			}
		}}
	})
	req.Generation = 2
	_, err := r.ensure(req)
	r.expect(err, backends.ErrTransient, "checksum mismatch")
	if _, vm := r.mustEnsure(req); !strings.Contains(vm.Config["description"], "hello") {
		t.Error("what was written meanwhile is lost")
	}
}

func TestATemplateThatDoesNotServeIsRefusedBeforeAClone(t *testing.T) {
	for name, c := range map[string]struct {
		spec pvefake.VMSpec
		disk int
		want string
	}{
		"a VM that is no template":     {pvefake.VMSpec{}, 4, "not a template"},
		"one with a cloud-init drive":  {pvefake.VMSpec{Template: true, Config: map[string]string{"ide0": "shared:9001/vm-9001-cloudinit.qcow2,media=cdrom"}}, 4, "cloud-init drive (ide0)"},
		"one without a network card":   {pvefake.VMSpec{Template: true, Config: map[string]string{"net0": ""}}, 4, "no network card net0"},
		"one whose disk has no size":   {pvefake.VMSpec{Template: true, Config: map[string]string{"scsi0": "shared:9001/base-9001-disk-0.qcow2"}}, 4, "has no size"},
		"one without any disk":         {pvefake.VMSpec{Template: true, Disk: "none"}, 4, "boot order"},
		"one with a larger disk":       {pvefake.VMSpec{Template: true, Disk: "8G"}, 4, "cannot shrink"},
		"none at all":                  {pvefake.VMSpec{ID: 9002, Template: true}, 4, "no template"},
		"one that boots from the disk": {pvefake.VMSpec{Template: true, Config: map[string]string{"boot": "order=scsi0"}}, 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, pvefake.Options{})
			if c.spec.ID == 0 {
				c.spec.ID = 9001
			}
			c.spec.Storage = "shared"
			r.c.AddVM(c.spec)
			r.c.RefreshStats()
			r.b.host.Images["debian-13"] = backends.Image{Template: "9001"}
			req := r.request()
			req.DiskGiB = c.disk
			_, err := r.ensure(req)
			if c.want == "" {
				r.expect(err, nil)
				return
			}
			r.expect(err, backends.ErrPermanent, c.want)
			r.expectNothing(req.Ref)
			if n := r.c.Count("POST", ""); n > 0 {
				t.Errorf("%d requests changed something", n)
			}
		})
	}
}

func TestClonesOfOneTemplateWaitForEachOther(t *testing.T) {
	r := newRig(t, pvefake.Options{})
	hang := make(chan struct{})
	r.c.InjectTask(pvefake.TaskFault{Type: "qmclone", Hang: hang})
	var wg sync.WaitGroup
	reqs := []backends.Request{r.request(), r.request(), r.request(), r.request()}
	ctx, cancel := context.WithCancel(r.ctx())
	var gaveUp error
	for i, req := range reqs {
		wg.Go(func() {
			in := r.ctx()
			if i == 3 {
				in = ctx
			}
			if _, err := r.b.Ensure(in, req, nil); i == 3 {
				gaveUp = err
			} else if err != nil {
				t.Error(err)
			}
		})
		if i == 1 {
			r.wait("two clones run", func() bool { return r.running("qmclone") == 2 })
		}
	}
	time.Sleep(100 * time.Millisecond)
	if n := r.running("qmclone"); n != 2 {
		t.Errorf("%d clones run at once, want 2", n)
	}
	cancel()
	time.Sleep(50 * time.Millisecond)
	close(hang)
	wg.Wait()
	if !backends.Ended(gaveUp) {
		t.Errorf("the one that gave up: %v", gaveUp)
	}
}
