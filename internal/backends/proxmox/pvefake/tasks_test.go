//go:build pve || proxmox_real

package pvefake

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a test on exact time.
func inBubble(t *testing.T, test func(*testing.T, *Cluster, *client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, cl := newTestCluster(t, Options{Speed: 1, InProcess: true})
		test(t, c, cl)
	})
}

const cloneCall = "/nodes/pve1/qemu/9000/clone"

func TestTasksEndAsInjected(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		remove := c.InjectTask(TaskFault{Type: "qmclone", ID: "9000", Exit: "clone failed: no luck", Times: 1})
		if got := cl.task("POST", cloneCall, form("newid", "101")); got != "clone failed: no luck" {
			t.Errorf("got %q", got)
		}
		if _, exists := c.VM(101); exists || len(c.Volumes("pve1", "local")) != 1 {
			t.Error("a clone that failed is still there")
		}
		remove()
		c.InjectTask(TaskFault{Type: "qmclone", Exit: "WARNINGS: 2", Times: 1})
		if got := cl.task("POST", cloneCall, form("newid", "101")); got != "WARNINGS: 2" {
			t.Errorf("got %q", got)
		}
		c.InjectTask(TaskFault{Type: "qmconfig", Exit: "disk on fire", Times: 1})
		cl.task("POST", "/nodes/pve1/qemu/101/config", form("cores", "2"))
		c.InjectTask(TaskFault{Type: "qmstart", Exit: "start failed: after all", Late: true, Times: 1})
		cl.task("POST", "/nodes/pve1/qemu/101/status/start", nil)
		if vm, _ := c.VM(101); vm.Config["cores"] != "1" || !vm.Running {
			t.Errorf("an early failure must leave nothing, a late one everything: %+v", vm)
		}
		if got := cl.task("POST", "/nodes/pve1/qemu/101/status/stop", nil); got != "OK" {
			t.Errorf("a fault outlived its count: %q", got)
		}
	})
}

func TestAHangingTaskIsStoppedByItsOwnerAndCleansUp(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		hang := make(chan struct{})
		defer close(hang)
		c.InjectTask(TaskFault{Type: "qmclone", Hang: hang})
		upid := cl.do("POST", cloneCall, form("newid", "101", "full", "1"))["data"].(string)
		time.Sleep(time.Hour)
		task := "/nodes/pve1/tasks/" + upid
		d := cl.do("GET", task+"/status", nil)["data"].(map[string]any)
		if _, ended := d["exitstatus"]; ended || d["status"] != "running" || d["id"] != "9000" || d["tokenid"] != "agent" {
			t.Errorf("got %v", d)
		}
		secret := c.AddToken("other@pve", "x", Grant{"/", []string{"VM.Audit"}})
		other := newClient(t, c, "pve1", "other@pve!x", secret)
		other.expect(403, "(/nodes/pve1, Sys.Audit)", "GET", task+"/status", nil)
		other.expect(403, "(/nodes/pve1, Sys.Modify)", "DELETE", task, nil)
		if rows := other.list("/nodes/pve1/tasks", form("source", "all")); len(rows) != 0 {
			t.Errorf("sees the tasks of another: %v", rows)
		}
		cl.expect(200, "OK", "DELETE", task, nil)
		if got := c.Tasks()[0]; got.Running || got.Exit != "interrupted by signal" {
			t.Errorf("got %+v", got)
		}
		c.ForgetTask(upid)
		cl.expect(400, `{"upid":"no such task"}`, "GET", task+"/status", nil)
		if log := cl.list(task+"/log", nil); log[0]["t"] != "unable to open file - No such file or directory" {
			t.Errorf("got %v", log)
		}
	})
}

func TestAWorkerThatDiesLeavesItsCloneLocked(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.InjectTask(TaskFault{Type: "qmclone", Die: true, Times: 1})
		if got := cl.task("POST", cloneCall, form("newid", "101", "full", "1")); got != "unexpected status" {
			t.Errorf("got %q", got)
		}
		if vm, ok := c.VM(101); !ok || vm.Config["lock"] != "clone" || vm.Name != "" {
			t.Errorf("got %+v", vm)
		}
		if got := cl.task("DELETE", "/nodes/pve1/qemu/101", nil); got != "VM is locked (clone)" {
			t.Errorf("got %q", got)
		}
		cl.expect(400, `{"skiplock":"Only root may use this option."}`, "DELETE", "/nodes/pve1/qemu/101", form("skiplock", "1"))
		c.SetLock(101, "")
		if got := cl.task("DELETE", "/nodes/pve1/qemu/101", nil); got != "OK" {
			t.Errorf("got %q", got)
		}
	})
}

func TestAStoppedCloneLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		upid := cl.do("POST", cloneCall, form("newid", "101", "full", "1"))["data"].(string)
		time.Sleep(time.Second)
		if !slices.ContainsFunc(c.Volumes("pve1", "local"), func(v string) bool { return strings.Contains(v, "vm-101-") }) {
			t.Fatal("the clone has not begun")
		}
		cl.expect(200, "OK", "DELETE", "/nodes/pve1/tasks/"+upid, nil)
		if got := c.Tasks()[0].Exit; !strings.HasPrefix(got, "clone failed: copy failed: ") || !strings.HasSuffix(got, "interrupted by signal") {
			t.Errorf("got %q", got)
		}
		if _, exists := c.VM(101); exists || len(c.Volumes("pve1", "local")) != 1 {
			t.Error("something is left")
		}
		cl.expect(200, "OK", "PUT", "/nodes/pve1/qemu/9000/config", form("description", "the lock file is free"))
	})
}

func TestTheLogOfATaskIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		cl.task("POST", cloneCall, form("newid", "101", "full", "1"))
		task := "/nodes/pve1/tasks/" + c.Tasks()[0].UPID
		all := cl.do("GET", task+"/log", form("limit", "0"))
		if n := int(all["total"].(float64)); n != len(c.Tasks()[0].Log) || n < 5 {
			t.Errorf("total %d", n)
		}
		page := cl.list(task+"/log", form("start", "1", "limit", "2"))
		if len(page) != 2 || page[0]["n"] != 2.0 {
			t.Errorf("got %v", page)
		}
		rows := cl.list("/nodes/pve1/tasks", form("typefilter", "qmclone"))
		if len(rows) != 1 || rows[0]["status"] != "OK" || rows[0]["endtime"] == nil {
			t.Errorf("got %v", rows)
		}
		if rows := cl.list("/nodes/pve1/tasks", form("errors", "1")); len(rows) != 0 {
			t.Errorf("got %v", rows)
		}
	})
}
