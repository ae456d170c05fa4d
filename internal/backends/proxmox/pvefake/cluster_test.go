//go:build pve || proxmox_real

package pvefake

import (
	"strings"
	"testing"
	"time"
)

// newTestCluster has a template 9000 and a token with the minimal rights.
func newTestCluster(t *testing.T, o Options) (*Cluster, *client) {
	t.Helper()
	c := New(t, o)
	secret := c.AddToken("fleet@pve", "agent", MinimalPrivileges(c.Version())...)
	c.AddVM(VMSpec{ID: 9000, Node: "pve1", Name: "debian", Template: true, Config: map[string]string{"tags": "base"}})
	return c, newClient(t, c, "pve1", "fleet@pve!agent", secret)
}

func TestAProxyIsMadeFromTheTemplateToItsAddressAndBack(t *testing.T) {
	for _, v := range []Version{V9, V8} {
		t.Run(v.String(), func(t *testing.T) {
			c, cl := newTestCluster(t, Options{Version: v})
			vm := "/nodes/pve1/qemu/101"
			ok := func(got string) {
				t.Helper()
				if got != "OK" {
					t.Fatalf("task ended %q, want OK", got)
				}
			}
			ok(cl.task("POST", "/nodes/pve1/qemu/9000/clone", form("newid", "101", "name", "proxy-1", "description", "a=1\nb=2\n", "full", "1")))
			iso := c.AddISO("pve1", "local", "seed.iso", make([]byte, 374784))
			ok(cl.task("POST", vm+"/config", form("cores", "2", "memory", "1024", "agent", "1", "tags", "B,a", "ide2", iso+",media=cdrom")))
			ok(cl.task("PUT", vm+"/resize", form("disk", "scsi0", "size", "8G")))
			got, _ := c.VM(101)
			want := map[string]string{
				"name": "proxy-1", "description": "a=1\nb=2", "tags": "a;b", "cores": "2", "memory": "1024",
				"ide2": "local:iso/seed.iso,media=cdrom,size=366K", "scsi0": "local:101/vm-101-disk-0.qcow2,size=8G",
				"boot": "order=scsi0;net0;ide2",
			}
			for k, w := range want {
				if got.Config[k] != w {
					t.Errorf("%s: got %q, want %q", k, got.Config[k], w)
				}
			}
			base, _ := c.VM(9000)
			if got.Config["net0"] == base.Config["net0"] || !strings.HasSuffix(got.Config["net0"], ",bridge=vmbr0") {
				t.Errorf("net0 %q: want a new MAC on the bridge of %q", got.Config["net0"], base.Config["net0"])
			}
			ok(cl.task("POST", vm+"/status/start", nil))
			deadline := time.Now().Add(5 * time.Second)
			for !strings.Contains(toJSON(cl.do("GET", vm+"/agent/network-get-interfaces", nil)), Address(101)) {
				if time.Now().After(deadline) {
					t.Fatalf("no address: %d %s", cl.status, cl.reason)
				}
			}
			ok(cl.task("POST", vm+"/status/stop", nil))
			ok(cl.task("DELETE", vm, form("purge", "1")))
			if vols := c.Volumes("pve1", "local"); len(vols) != 2 {
				t.Errorf("left behind: %v", vols)
			}
		})
	}
}
