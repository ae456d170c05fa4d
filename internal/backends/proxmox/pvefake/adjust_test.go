//go:build pve || proxmox_real

package pvefake

import "strings"

// adjust brings the VMs into the state that the recording's name tells.
func (s *scene) adjust() {
	c := s.c
	if s.is(`^(hibernated|locked-suspended)\.`) {
		s.edit(201, "lock", "suspended", "net0", "")
	}
	if s.is(`^hibernated`) {
		s.edit(201, "vmstate", "local:201/vm-201-state-suspend-2026-01-01.raw")
	}
	running := `^agent-.*\.(ok|configured-not-running|paused|running-not-configured)$|^as-auditor\.agent.*-ok$` +
		`|^config-(put|post)\..*while-running$|^locked-\w+-running\.|^reboot\.no-guest|^reset\.ok|^resume\.ok` +
		`|^shutdown\.(agent|force|no-guest)|^start\.when-|^status\.(paused|resumed|running|after-shutdown)` +
		`|^stop\.(ok|with-timeout|cleanup)|^suspend\.(agent-vm|ok)|^template\.convert-running|^destroy\.running` +
		`|^resize\.while-running|^cluster-resources\.vm-(running|paused)|^qemu-list\.(full-running|vm-)|^pending-get\..*running`
	if s.is(`not-configured|^shutdown\.(force|no-guest)|^status\.(after-shutdown|resumed)`) {
		s.edit(201, "agent", "")
	}
	if s.is(running) {
		c.SetRunning(201, true)
	}
	if s.is(`^minrole\.(agent|status|stop)$`) {
		c.SetRunning(320, true)
	}
	if s.is(`paused|^resume\.ok|^locked-(clone|suspended)-running`) && s.is(running) {
		c.SetPaused(201, true)
	}
	g := Guest{IgnoresShutdown: true}
	if s.is(`^agent-.*configured-not-running|^minrole\.agent|^shutdown\.agent|^reboot\.no-guest`) {
		g.NoAgent = true
	}
	if _, ok := c.VM(201); ok {
		c.SetGuest(201, g)
	}
	if s.is(`^minrole`) && s.c.vms[320] != nil {
		c.SetGuest(320, g)
	}
	if rest, ok := strings.CutPrefix(s.name, "locked-"); ok {
		lock, _, _ := strings.Cut(rest, ".")
		lock = strings.TrimSuffix(lock, "-running")
		if !s.is(`after-start-stop`) {
			c.SetLock(201, lock)
		} else {
			c.SetLock(201, "")
			c.SetRunning(201, true)
		}
	}
	s.adjustStart()
	s.adjustRest()
}

func (s *scene) adjustStart() {
	switch s.name {
	case "start.attached-iso-missing":
		s.edit(202, "ide2", "local:iso/proxyfleet-seed-9.iso,media=cdrom,size=366K")
	case "start.bridge-missing":
		s.edit(202, "net0", "virtio=BC:24:11:0D:C1:54,bridge=vmbr9")
	case "start.disk-missing":
		s.c.mu.Lock()
		delete(s.c.storages["local"].on("pve1"), "202/vm-202-disk-0.qcow2")
		s.c.mu.Unlock()
	case "start.too-much-memory":
		s.edit(202, "memory", "99999999")
	case "start.ok-no-warnings", "start.for-lock":
		s.edit(201, "net0", "")
	}
}

func (s *scene) adjustRest() {
	c := s.c
	switch {
	case s.is(`^filelock`):
		s.t.Cleanup(c.HoldLockFile(201))
	case s.is(`^destroy\.(again|stopped-purge-disk|purge-without)`):
		s.c.mu.Lock()
		for _, id := range []int{100, 203, 500} {
			if v := c.vms[id]; v != nil {
				c.dropVolumes(v)
			}
		}
		s.c.mu.Unlock()
	case s.is(`^daemon-down`):
		c.DaemonDown("pve1", true)
	case s.is(`^as-clone-allocatespace`):
		s.edit(9001, "net0", "virtio=BC:24:11:70:9D:A9,bridge=vmbr0")
	case s.is(`^resize\.cdrom`):
		s.edit(201, "ide2", "none,media=cdrom")
	case s.is(`cdrom-while-running`):
		s.edit(201, "ide2", "none,media=cdrom")
	case s.is(`^resize\.(same-size|shrink)`):
		s.c.mu.Lock()
		s.c.storages["local"].on("pve1")["201/vm-201-disk-0.qcow2"].size = 2560 << 20
		s.c.mu.Unlock()
		s.edit(201, "scsi0", "local:9001/base-9001-disk-0.qcow2/201/vm-201-disk-0.qcow2,size=2560M")
	case s.is(`^config-put\.tags-(not-in|registered|removing)`):
		s.edit(201, "tags", "a")
		c.SetTagPolicy([]string{"fleet"}, []string{"prod"})
	case s.is(`^pending-get\..*running`):
		s.call("PUT", "/nodes/pve1/qemu/201/config", form("cores", "2", "memory", "768"))
	}
}
