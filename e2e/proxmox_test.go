//go:build real && pve

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends/proxmox/pvefake"
	"proxyfleet/internal/bus"
)

// TestAProxmoxVMFromIntentToDeletion is the whole way on a simulated cluster of Proxmox VE,
// which refuses what the real API's schema refuses.
func TestAProxmoxVMFromIntentToDeletion(t *testing.T) {
	c := pvefake.New(t, pvefake.Options{})
	secret := c.AddToken("proxyfleet@pve", "agent", pvefake.MinimalPrivileges(c.Version())...)
	c.AddVM(pvefake.VMSpec{ID: 9000, Name: "debian-13", Template: true, Storage: "shared"})
	c.RefreshStats()
	before := volumes(c)

	f := newFleet(t, "always")
	const password = "a-word-that-nobody-logs"
	a := f.startAgent("pve", fmt.Sprintf(`backend:
  type: proxmox
  urls: ['%s']
  tokenFile: %s
  ca: %s
  seedStorage: shared
  network: {bridge: vmbr0}
images: {debian-13: {template: debian-13}}
machineTypes: {small: {vcpus: 1, memoryMiB: 512}}
defaults: {image: debian-13, machineType: small, diskGiB: 4}
probe: {disabled: true}
log: {level: debug}
`, strings.Join(c.URLs(), "', '"), f.file("token", "proxyfleet@pve!agent="+secret+"\n"), f.file("ca.pem", string(c.CAPEM()))))

	f.publish("crawl-1", `{"name":"crawl-1","spec":{"auth":{"username":"crawler","password":"`+password+`"},"cloudInit":"#cloud-config\n# `+password+`\n"}}`)
	r := f.awaitPhase("crawl-1", bus.PhaseRunning, 60*time.Second)
	var made []pvefake.VM
	for _, vm := range c.VMs() {
		if vm.ID != 9000 {
			made = append(made, vm)
		}
	}
	if len(made) != 1 || len(r.Addresses) == 0 || r.Addresses[0].Address != pvefake.Address(made[0].ID) {
		t.Fatalf("the record says %+v, the cluster has %+v", r.Addresses, made)
	}

	f.publish("crawl-1", `{"name":"crawl-1","desired":"absent"}`)
	f.awaitNoTrace("crawl-1", 60*time.Second)
	if vms := c.VMs(); len(vms) != 1 {
		t.Errorf("VMs are left: %+v", vms)
	}
	if after := volumes(c); after != before {
		t.Errorf("volumes:\n%s\nwere\n%s", after, before)
	}
	a.stop()
	for what, text := range map[string]string{"password": password, "token": secret} {
		if strings.Contains(a.output(), text) || strings.Contains(f.coordinator.output(), text) {
			t.Errorf("the %s was logged", what)
		}
	}
}

// volumes are all that every node's storages hold.
func volumes(c *pvefake.Cluster) string {
	var all strings.Builder
	for _, node := range []string{"pve1", "pve2"} {
		for _, storage := range []string{"local", "local-lvm", "shared"} {
			fmt.Fprintf(&all, "%s %s: %v\n", node, storage, c.Volumes(node, storage))
		}
	}
	return all.String()
}
