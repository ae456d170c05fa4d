//go:build pve || proxmox_real

package pvefake

import (
	"strings"
	"testing"
	"time"
)

func TestWhatATestChangesIsSeenByTheClient(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 101, Running: true})
		current := func() map[string]any {
			return cl.do("GET", "/nodes/pve1/qemu/101/status/current", nil)["data"].(map[string]any)
		}
		c.SetPaused(101, true)
		if d := current(); d["status"] != "running" || d["qmpstatus"] != "paused" {
			t.Errorf("paused: got %v", d)
		}
		c.RefreshStats()
		if r := cl.list("/cluster/resources", form("type", "vm"))[0]; r["vmid"] != 101.0 || r["status"] != "paused" {
			t.Errorf("paused: got %v", r)
		}
		c.SetRunning(101, false)
		if d := current(); d["status"] != "stopped" {
			t.Errorf("stopped: got %v", d)
		}
		c.SetBridges("pve1", "vmbr7")
		if got := cl.task("POST", "/nodes/pve1/qemu/101/status/start", nil); got != "bridge 'vmbr0' does not exist" {
			t.Errorf("got %q", got)
		}
		rows := cl.list("/nodes/pve1/network", form("type", "any_bridge"))
		if len(rows) != 1 || rows[0]["iface"] != "vmbr7" {
			t.Errorf("got %v", rows)
		}
		c.SetMemory("pve1", 8<<30, 3<<30)
		mem := cl.do("GET", "/nodes/pve1/status", nil)["data"].(map[string]any)["memory"].(map[string]any)
		if mem["total"] != float64(8<<30) || mem["available"] != float64(5<<30) {
			t.Errorf("got %v", mem)
		}
		c.RemoveVM(101)
		cl.expect(500, "'nodes/pve1/qemu-server/101.conf' does not exist", "GET", "/nodes/pve1/qemu/101/config", nil)
		c.AddVM(VMSpec{ID: 101, Node: "pve2", Name: "of-somebody-else"})
		cl.expect(200, "OK", "GET", "/nodes/pve2/qemu/101/config", nil)
		c.ForgetRequests()
		if n := c.Count("", ""); n != 0 {
			t.Errorf("counted %d", n)
		}
	})
}

func TestAFullStorageFailsWhatWritesToIt(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		s := c.Storage("local")
		s.Used = s.Total
		c.SetStorage(s)
		if got := cl.task("POST", cloneCall, form("newid", "101", "full", "1")); !strings.HasPrefix(got, "clone failed: copy failed: ") {
			t.Errorf("got %q", got)
		}
		if got := cl.upload(5000); !strings.Contains(toJSON(got), ":imgcopy:") {
			t.Fatal(got)
		}
		if err := c.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.Tasks()[1].Exit; !strings.HasSuffix(got, "/template/iso/seed.iso': No space left on device") {
			t.Errorf("got %q", got)
		}
		d := cl.do("GET", "/nodes/pve1/storage/local/status", nil)["data"].(map[string]any)
		if d["avail"] != 0.0 {
			t.Errorf("got %v", d)
		}
	})
}

func TestADelayIsRealTimeAndADelayedRequestIsStillHandled(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.OnRequest(func(Request) Action { return Action{Delay: time.Minute} })
		begun := time.Now()
		cl.expect(200, "OK", "GET", "/version", nil)
		if took := time.Since(begun); took != time.Minute {
			t.Errorf("took %s", took)
		}
	})
}

func TestAStoppedDaemonLeavesOnlyWhatNeedsNoRoot(t *testing.T) {
	c, cl := newTestCluster(t, Options{})
	other := *cl
	other.base = c.URL("pve2")
	c.DaemonDown("pve1", true)
	cl.expect(595, "Connection refused", "GET", "/nodes/pve1/qemu/9000/status/current", nil)
	other.expect(595, "Connection refused", "GET", "/nodes/pve1/qemu/9000/status/current", nil)
	cl.expect(200, "OK", "GET", "/nodes/pve1/qemu/9000/config", nil)
	cl.expect(200, "OK", "GET", "/nodes/pve2/qemu", nil)
	c.DaemonDown("pve1", false)
	cl.expect(200, "OK", "GET", "/nodes/pve1/qemu/9000/status/current", nil)
	c.CutConnections("pve1")
	cl.do("GET", "/version", nil)
	cl.expect(200, "OK", "GET", "/version", nil)
}
