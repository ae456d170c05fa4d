//go:build pve || proxmox_real

package pvefake

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestACloneIsNamelessAndLockedUntilItIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.SetTaskDuration("qmclone", 12*time.Second)
		cl.do("POST", cloneCall, form("newid", "101", "name", "p", "full", "1", "description", "mine"))
		vm, _ := c.VM(101)
		want := map[string]string{"lock": "clone", "description": " qmclone temporary file"}
		if !maps.Equal(vm.Config, want) {
			t.Errorf("got %v, want %v", vm.Config, want)
		}
		find := func() map[string]any {
			for _, r := range cl.list("/cluster/resources", form("type", "vm")) {
				if r["vmid"] == 101.0 {
					return r
				}
			}
			return nil
		}
		if r := find(); r["name"] != nil || r["status"] != "unknown" || r["lock"] != "clone" {
			t.Errorf("before pvestatd: got %v", r)
		}
		cl.expect(500, "VM is locked (clone)", "PUT", "/nodes/pve1/qemu/101/config", form("cores", "2"))
		begun := time.Now()
		cl.expect(500, "can't lock file '/var/lock/qemu-server/lock-9000.conf'", "PUT", "/nodes/pve1/qemu/9000/config", form("cores", "2"))
		if took := time.Since(begun); took != lockWait {
			t.Errorf("the lock file was waited for %s, want %s", took, lockWait)
		}
		time.Sleep(20 * time.Second)
		if r := find(); r["name"] != "p" || r["status"] != "stopped" || r["lock"] != nil {
			t.Errorf("after pvestatd: got %v", r)
		}
		if vm, _ := c.VM(101); vm.Config["description"] != "mine" || vm.Config["tags"] != "base" {
			t.Errorf("got %v", vm.Config)
		}
	})
}

func TestLinkedClonesHoldTheirTemplate(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		cl.task("POST", cloneCall, form("newid", "101"))
		vm, _ := c.VM(101)
		if got, want := vm.Config["scsi0"], "local:9000/base-9000-disk-0.qcow2/101/vm-101-disk-0.qcow2,size=2G"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := cl.task("DELETE", "/nodes/pve1/qemu/9000", nil); !strings.Contains(got, "still in use by linked cloned") {
			t.Errorf("got %q", got)
		}
		c.AddVM(VMSpec{ID: 9002, Template: true, Storage: "local-lvm"})
		cl.task("POST", "/nodes/pve1/qemu/9002/clone", form("newid", "102"))
		if vm, _ := c.VM(102); vm.Config["scsi0"] != "local-lvm:vm-102-disk-0,size=2G" {
			t.Errorf("on a thin pool: got %q", vm.Config["scsi0"])
		}
		if got := cl.task("DELETE", "/nodes/pve1/qemu/9002", nil); got != "OK" {
			t.Errorf("a thin snapshot does not hold its origin: %q", got)
		}
	})
}

func TestACloneGoesToAnotherNodeOnlyFromSharedStorage(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		cl.expect(500, "can't clone VM to node 'pve2' (VM uses local storage)", "POST", cloneCall, form("newid", "101", "target", "pve2"))
		c.AddVM(VMSpec{ID: 9001, Node: "pve1", Template: true, Storage: "shared"})
		if got := cl.task("POST", "/nodes/pve1/qemu/9001/clone", form("newid", "101", "target", "pve2", "full", "1")); got != "OK" {
			t.Fatal(got)
		}
		if vm, _ := c.VM(101); vm.Node != "pve2" {
			t.Errorf("on %s", vm.Node)
		}
		cl.expect(500, "'nodes/pve1/qemu-server/101.conf' does not exist", "GET", "/nodes/pve1/qemu/101/config", nil)
		cl.expect(500, "can't clone to non-shared storage 'local'", "POST", "/nodes/pve1/qemu/9001/clone",
			form("newid", "102", "target", "pve2", "full", "1", "storage", "local"))
	})
}

func TestALocalISOBlocksMigration(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.SetGrants("fleet@pve", Grant{"/", Privileges(V9)})
		c.AddVM(VMSpec{ID: 101, Storage: "shared", Running: true})
		iso := c.AddISO("pve1", "local", "seed.iso", []byte("x"))
		move := "/nodes/pve1/qemu/101/migrate"
		cl.expect(400, `{"target":"target is local node."}`, "POST", move, form("target", "pve1"))
		cl.expect(500, "can't migrate running VM without --online", "POST", move, form("target", "pve2"))
		cl.expect(200, "OK", "PUT", "/nodes/pve1/qemu/101/config", form("scsi1", iso+",media=cdrom"))
		if got := cl.task("POST", move, form("target", "pve2", "online", "1")); got != "migration aborted" {
			t.Errorf("got %q", got)
		}
		cl.expect(200, "OK", "PUT", "/nodes/pve1/qemu/101/config", form("delete", "scsi1"))
		if got := cl.task("POST", move, form("target", "pve2", "online", "1")); got != "OK" {
			t.Errorf("got %q", got)
		}
		if vm, _ := c.VM(101); vm.Node != "pve2" || !vm.Running {
			t.Errorf("got %+v", vm)
		}
		c.AddVM(VMSpec{ID: 102, Config: map[string]string{"ide2": iso + ",media=cdrom"}})
		c.MoveVM(102, "pve2")
		if got := cl.task("POST", "/nodes/pve2/qemu/102/status/start", nil); got != "volume 'local:iso/seed.iso' does not exist" {
			t.Errorf("its ISO stayed behind: got %q", got)
		}
	})
}

func TestHATasksEndBeforeTheirWorkIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 101, HA: true})
		if got := cl.task("POST", "/nodes/pve1/qemu/101/status/start", nil); got != "OK" {
			t.Fatal(got)
		}
		vm, _ := c.VM(101)
		d := cl.do("GET", "/nodes/pve1/qemu/101/status/current", nil)["data"].(map[string]any)
		if vm.Running || d["ha"].(map[string]any)["managed"] != 1.0 {
			t.Errorf("got %v", d)
		}
		time.Sleep(11 * time.Second)
		if vm, _ := c.VM(101); !vm.Running {
			t.Error("HA never started it")
		}
		c.SetRunning(101, false)
		cl.expect(500, "used in HA resources and purge parameter not set", "DELETE", "/nodes/pve1/qemu/101", nil)
		if got := cl.task("DELETE", "/nodes/pve1/qemu/101", form("purge", "1")); got != "OK" {
			t.Error(got)
		}
	})
}

func TestAProtectedVMIsNotRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 101, Config: map[string]string{"protection": "1"}})
		cl.expect(500, "can't remove VM 101 - protection mode enabled", "DELETE", "/nodes/pve1/qemu/101", nil)
	})
}

func TestAnAttachedISOIsDeletedInSilence(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		iso := c.AddISO("pve1", "local", "seed.iso", []byte("x"))
		c.AddVM(VMSpec{ID: 101, Config: map[string]string{"ide2": iso + ",media=cdrom"}})
		if got := cl.task("DELETE", "/nodes/pve1/storage/local/content/"+iso, nil); got != "OK" {
			t.Error(got)
		}
		if got := cl.task("POST", "/nodes/pve1/qemu/101/status/start", nil); got != "volume 'local:iso/seed.iso' does not exist" {
			t.Error(got)
		}
	})
}

func TestUnreferencedDisksOfTheSameIDGoEverywhere(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 101})
		c.AddVM(VMSpec{ID: 555, Storage: "shared"}) // its disk, as if of another cluster's VM 101
		c.mu.Lock()
		for _, v := range c.storages["shared"].on("pve1") {
			v.vmid = 101
		}
		c.mu.Unlock()
		cl.task("DELETE", "/nodes/pve1/qemu/101", form("purge", "1", "destroy-unreferenced-disks", "1"))
		if left := c.Volumes("pve1", "shared"); len(left) != 0 {
			t.Errorf("got %v; the flag takes whatever carries the VMID", left)
		}
	})
}

func TestTheAgentIsConfiguredOnlyAfterARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 101, Running: true, Config: map[string]string{"agent": ""}})
		vm := "/nodes/pve1/qemu/101"
		cl.expect(200, "OK", "PUT", vm+"/config", form("agent", "1"))
		cl.expect(500, "No QEMU guest agent configured", "POST", vm+"/agent/ping", nil)
		if got := cl.do("GET", vm+"/config", nil)["data"].(map[string]any)["agent"]; got != "1" {
			t.Errorf("the config shows what is pending: got %v", got)
		}
		if got, ok := cl.do("GET", vm+"/config", form("current", "1"))["data"].(map[string]any)["agent"]; ok {
			t.Errorf("current=1 does not: got %v", got)
		}
		cl.task("POST", vm+"/status/stop", nil)
		cl.task("POST", vm+"/status/start", nil)
		begun := time.Now()
		cl.expect(500, "QEMU guest agent is not running", "POST", vm+"/agent/ping", nil)
		if took := time.Since(begun); took != agentDelay {
			t.Errorf("a silent agent took %s, want %s", took, agentDelay)
		}
		time.Sleep(5 * time.Second)
		cl.expect(200, "OK", "POST", vm+"/agent/ping", nil)
	})
}

func TestACloudInitDriveIsMadeAnewByAClone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 9001, Template: true, Config: map[string]string{"ide0": "local:9001/vm-9001-cloudinit.qcow2,media=cdrom"}})
		cl.task("POST", "/nodes/pve1/qemu/9001/clone", form("newid", "101"))
		if vm, _ := c.VM(101); vm.Config["ide0"] != "local:101/vm-101-cloudinit.qcow2,media=cdrom" {
			t.Errorf("got %v", vm.Config)
		}
		if got := cl.task("POST", "/nodes/pve1/qemu/101/status/start", nil); got != "OK" {
			t.Error(got)
		}
	})
}

func TestAConfigTaskIsWaitedForWhenAsked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		config := "/nodes/pve1/qemu/9000/config"
		if got := cl.do("POST", config, form("cores", "2", "background_delay", "5")); got["data"] != nil || cl.status != 200 {
			t.Errorf("got %d %v, want null", cl.status, got)
		}
		cl.expect(500, "failed to update VM 9000: volume 'local:iso/none.iso' does not exist", "POST", config,
			form("ide2", "local:iso/none.iso,media=cdrom", "background_delay", "5"))
		defer c.HoldLockFile(9000)()
		if got, _ := cl.do("POST", config, form("cores", "2", "background_delay", "5"))["data"].(string); !strings.HasPrefix(got, "UPID:") {
			t.Errorf("got %q, want the UPID of a task that still waits", got)
		}
	})
}

func TestADigestGuardsTheConfig(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		config := "/nodes/pve1/qemu/9000/config"
		digest := cl.do("GET", config, nil)["data"].(map[string]any)["digest"].(string)
		cl.expect(200, "OK", "PUT", config, form("cores", "2", "digest", digest))
		cl.expect(500, "checksum mismatch (file change by other user?)", "PUT", config, form("cores", "3", "digest", digest))
		cl.expect(200, "OK", "PUT", config, form("cores", "1"))
		cl.expect(200, "OK", "PUT", config, form("cores", "3", "digest", digest))
	})
}

func TestADiskThatIsTakenOutIsKeptUntilForced(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 101})
		vm := "/nodes/pve1/qemu/101"
		cl.expect(200, "OK", "PUT", vm+"/config", form("scsi1", "local:3"))
		cl.expect(200, "OK", "PUT", vm+"/config", form("delete", "scsi1"))
		got, _ := c.VM(101)
		if got.Config["unused0"] != "local:101/vm-101-disk-1.raw" || got.Config["boot"] != "order=scsi0;net0" {
			t.Errorf("got %v", got.Config)
		}
		cl.expect(200, "OK", "PUT", vm+"/unlink", form("idlist", "unused0"))
		if _, exists := c.Volume("pve1", "local:101/vm-101-disk-1.raw"); exists {
			t.Error("the volume is still there")
		}
		rows := cl.list("/nodes/pve1/storage/local/content", form("vmid", "101"))
		if len(rows) != 1 || rows[0]["volid"] != "local:101/vm-101-disk-0.qcow2" || rows[0]["content"] != "images" {
			t.Errorf("got %v", rows)
		}
	})
}
