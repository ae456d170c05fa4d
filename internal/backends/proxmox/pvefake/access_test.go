//go:build pve || proxmox_real

package pvefake

import (
	"maps"
	"slices"
	"testing"
	"time"
)

func TestADeeperGrantReplacesWhatItInherits(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 101})
		c.SetGrants("fleet@pve", Grant{"/", []string{"VM.Audit", "VM.PowerMgmt"}}, Grant{"/vms/101", []string{"VM.Audit"}})
		cl.expect(403, "(/vms/101, VM.PowerMgmt)", "POST", "/nodes/pve1/qemu/101/status/start", nil)
		cl.expect(200, "OK", "POST", "/nodes/pve1/qemu/9000/status/start", nil)
		got := cl.do("GET", "/access/permissions", form("path", "/vms/101"))["data"].(map[string]any)["/vms/101"].(map[string]any)
		if want := []string{"VM.Audit"}; !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

func TestASeparatedTokenHasOnlyWhatBothHave(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		secret := c.AddSeparatedToken("fleet@pve", "small", Grant{"/", []string{"VM.Audit", "Sys.Modify"}})
		small := newClient(t, c, "pve1", "fleet@pve!small", secret)
		got := small.do("GET", "/access/permissions", nil)["data"].(map[string]any)["/"].(map[string]any)
		if want := []string{"VM.Audit"}; !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
			t.Errorf("got %v, want %v: the user has no Sys.Modify", got, want)
		}
	})
}

func TestAPoolGivesItsRightsToItsMembers(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.SetGrants("fleet@pve", Grant{"/pool/fleet", []string{"VM.Audit", "VM.Allocate"}}, Grant{"/vms/9000", []string{"VM.Clone"}},
			Grant{"/storage/local", []string{"Datastore.AllocateSpace"}}, Grant{"/sdn/zones/localnetwork/vmbr0", []string{"SDN.Use"}})
		cl.expect(403, "Permission check failed (pool 'fleet' does not exist)", "POST", cloneCall, form("newid", "101", "pool", "fleet"))
		c.AddPool("fleet")
		cl.expect(403, "Permission check failed", "POST", cloneCall, form("newid", "101"))
		if cl.do("POST", cloneCall, form("newid", "101", "pool", "fleet")); cl.status != 200 {
			t.Fatalf("got %d %s", cl.status, cl.reason)
		}
		time.Sleep(time.Minute)
		cl.expect(200, "OK", "GET", "/nodes/pve1/qemu/101/config", nil)
		if rows := cl.list("/nodes/pve1/qemu", nil); len(rows) != 1 {
			t.Errorf("got %v, want the pool's VM alone", rows)
		}
	})
}

func TestAVLANNeedsTheBridgeOfItsTag(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		c.SetGrants("fleet@pve", Grant{"/vms", []string{"VM.Config.Network"}})
		cl.expect(403, "(/sdn/zones/localnetwork/vmbr0/7, SDN.Use)", "PUT", "/nodes/pve1/qemu/9000/config", form("net0", "virtio,bridge=vmbr0,tag=7"))
	})
}

func TestGuestAgentPrivilegesDifferByVersion(t *testing.T) {
	bothVersions(t, func(t *testing.T, c *Cluster, cl *client) {
		c.AddVM(VMSpec{ID: 101, Running: true})
		ping := "/nodes/pve1/qemu/101/agent/ping"
		cl.expect(200, "OK", "POST", ping, nil)
		c.SetGrants("fleet@pve", Grant{"/", []string{"VM.Audit"}})
		want := "Permission check failed (/vms/101, VM.GuestAgent.Audit|VM.GuestAgent.Unrestricted)"
		if c.Version() == V8 {
			want = "Permission check failed (/vms/101, VM.Monitor)"
		}
		cl.expect(403, want, "POST", ping, nil)
	})
}

func TestEveryRefusalOfATokenTakesThreeSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cluster, cl *client) {
		refused := func(what string) {
			t.Helper()
			begun := time.Now()
			cl.expect(401, "Authentication failed!", "GET", "/version", nil)
			if took := time.Since(begun); took != authDelay {
				t.Errorf("%s took %s, want %s", what, took, authDelay)
			}
		}
		c.ExpireToken("fleet@pve!agent")
		refused("an expired token")
		c.RotateToken("fleet@pve!agent")
		refused("an old secret")
		c.DisableUser("fleet@pve")
		refused("a disabled user")
	})
}
