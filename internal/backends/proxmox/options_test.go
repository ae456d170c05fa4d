//go:build pve || proxmox_real

package proxmox

import (
	"strings"
	"testing"

	"proxyfleet/internal/backends/proxmox/pve"
)

func TestANetworkCardIsMovedAndKeepsItsMAC(t *testing.T) {
	const mac = "BC:24:11:75:29:B7"
	for name, c := range map[string]struct {
		in   string
		to   Network
		want string
	}{
		"to another bridge":              {"virtio=" + mac + ",bridge=vmbr0,firewall=1", Network{Bridge: "vmbr1"}, "virtio=" + mac + ",bridge=vmbr1,firewall=1"},
		"to a VLAN":                      {"virtio=" + mac + ",bridge=vmbr0", Network{Bridge: "vmbr0", VLAN: 4}, "virtio=" + mac + ",bridge=vmbr0,tag=4"},
		"to another VLAN":                {"virtio=" + mac + ",bridge=vmbr0,tag=9,mtu=1400", Network{Bridge: "vmbr0", VLAN: 4}, "virtio=" + mac + ",bridge=vmbr0,tag=4,mtu=1400"},
		"out of a VLAN":                  {"virtio=" + mac + ",bridge=vmbr0,tag=9", Network{Bridge: "vmbr0"}, "virtio=" + mac + ",bridge=vmbr0"},
		"nowhere":                        {"e1000=" + mac + ",bridge=vmbr0,tag=9", Network{}, "e1000=" + mac + ",bridge=vmbr0,tag=9"},
		"to a VLAN of its own bridge":    {"virtio=" + mac + ",bridge=vmbr0", Network{VLAN: 4}, "virtio=" + mac + ",bridge=vmbr0,tag=4"},
		"and its link is put up":         {"virtio=" + mac + ",link_down=1,bridge=vmbr0", Network{}, "virtio=" + mac + ",bridge=vmbr0"},
		"when it is written in the long": {"model=virtio,macaddr=" + mac + ",bridge=vmbr0", Network{Bridge: "vmbr1"}, "model=virtio,macaddr=" + mac + ",bridge=vmbr1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := rewire(c.in, c.to)
			if got != c.want || netMAC(got) != strings.ToLower(mac) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTheGuestAgentIsSwitchedOnAndKeepsItsOptions(t *testing.T) {
	for in, want := range map[string]string{
		"": "enabled=1", "1": "enabled=1", "0": "enabled=1", "enabled=0,type=isa": "enabled=1,type=isa", "1,fstrim_cloned_disks=1": "enabled=1,fstrim_cloned_disks=1",
	} {
		if got := agentOn(in); got != want || !hasAgent(got) {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if hasAgent("") || hasAgent("0") || hasAgent("enabled=0,type=isa") || !hasAgent("1,type=isa") {
		t.Error("on and off are confused")
	}
}

func TestTheBootDiskIsFoundWithItsSize(t *testing.T) {
	for name, c := range map[string]struct {
		conf pve.VMConfig
		key  string
		size int64
	}{
		"by boot order":         {pve.VMConfig{"boot": "order=net0;scsi1;scsi0", "scsi0": "a:1,size=1G", "scsi1": "a:2,size=2560M", "net0": "virtio"}, "scsi1", 2560 * mib},
		"past a CD drive":       {pve.VMConfig{"boot": "order=ide2;virtio0", "ide2": "none,media=cdrom", "virtio0": "a:1,size=10G"}, "virtio0", 10 * gib},
		"by the old option":     {pve.VMConfig{"boot": "c", "bootdisk": "sata0", "sata0": "a:1,size=1T", "sata1": "a:2,size=1G"}, "sata0", 1024 * gib},
		"because it is alone":   {pve.VMConfig{"ide0": "file=a:1,size=512K"}, "ide0", 512 << 10},
		"without its size":      {pve.VMConfig{"scsi0": "a:1"}, "scsi0", 0},
		"among EFI and TPM":     {pve.VMConfig{"efidisk0": "a:1,size=4M", "tpmstate0": "a:2,size=4M", "scsi0": "a:3,size=1G"}, "scsi0", gib},
		"not among several":     {pve.VMConfig{"scsi0": "a:1,size=1G", "scsi1": "a:2,size=1G"}, "", 0},
		"not where none is":     {pve.VMConfig{"net0": "virtio"}, "", 0},
		"scsihw is not a disk":  {pve.VMConfig{"scsihw": "virtio-scsi-pci", "scsi0": "a:1,size=1G"}, "scsi0", gib},
		"a drive of cloud-init": {pve.VMConfig{"ide0": "a:vm-1-cloudinit,media=cdrom", "scsi0": "a:1,size=1G"}, "scsi0", gib},
	} {
		t.Run(name, func(t *testing.T) {
			key, size, err := bootDisk(c.conf)
			if key != c.key || size != c.size || (err != nil) != (c.key == "") {
				t.Errorf("got %s %d %v, want %s %d", key, size, err, c.key, c.size)
			}
		})
	}
}

func TestTheSeedGetsADrive(t *testing.T) {
	for name, c := range map[string]struct {
		conf pve.VMConfig
		want string
	}{
		"ide2, which is free":             {pve.VMConfig{"scsi0": "a:1"}, "ide2"},
		"ide2, which is an empty drive":   {pve.VMConfig{"ide2": "none,media=cdrom"}, "ide2"},
		"the one that it has":             {pve.VMConfig{"ide2": "none,media=cdrom", "sata1": "s:iso/x.iso,media=cdrom,size=4M"}, "sata1"},
		"another, if ide2 has a disk":     {pve.VMConfig{"ide2": "a:1,size=1G"}, "ide0"},
		"none, if there is none left":     {full(), ""},
		"one on SATA, if IDE has no more": {pve.VMConfig{"ide0": "a:1", "ide1": "a:1", "ide2": "a:1", "ide3": "a:1"}, "sata0"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cdSlot(c.conf, "s:iso/x.iso")
			if got != c.want || (err != nil) != (c.want == "") {
				t.Errorf("got %q %v, want %q", got, err, c.want)
			}
		})
	}
}

func full() pve.VMConfig {
	conf := pve.VMConfig{}
	for _, s := range []string{"ide0", "ide1", "ide2", "ide3", "sata0", "sata1", "sata2", "sata3", "sata4", "sata5"} {
		conf[s] = "a:1,size=1G"
	}
	return conf
}

func FuzzOptions(f *testing.F) {
	f.Add("virtio=BC:24:11:75:29:B7,bridge=vmbr0,tag=4", "vmbr1", 7)
	f.Add("1,type=isa", "", 0)
	f.Fuzz(func(t *testing.T, option, bridge string, vlan int) {
		if strings.ContainsAny(bridge, ",=") {
			return
		}
		got := rewire(option, Network{Bridge: bridge, VLAN: vlan})
		if netMAC(option) != "" && netMAC(got) != netMAC(option) {
			t.Errorf("%q became %q: the MAC is another", option, got)
		}
		if again := rewire(got, Network{Bridge: bridge, VLAN: vlan}); again != got {
			t.Errorf("doing it twice differs: %q, %q", got, again)
		}
		if !hasAgent(agentOn(option)) {
			t.Errorf("%q: %q is not on", option, agentOn(option))
		}
		_, _ = parseSize(option)
		_, _, _ = bootDisk(pve.VMConfig{"boot": option, "scsi0": option})
	})
}
