package libvirt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
)

// macAddress is stable for a uid, in QEMU's own range.
func macAddress(uid string) string {
	sum := sha256.Sum256([]byte("mac\x00" + uid))
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}

// domainUUID is stable for a uid (a UUID of version 8, RFC 9562), so that libvirt itself
// refuses a second domain for it, under whatever name.
func domainUUID(uid string) string {
	sum := sha256.Sum256([]byte("uuid\x00" + uid))
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	h := hex.EncodeToString(sum[:16])
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

// rootTarget is how a domain's root disk is called.
const rootTarget = "vda"

// guestAgentChannel is the name by which QEMU's guest agent finds its channel.
const guestAgentChannel = "org.qemu.guest_agent.0"

// blueprint is everything that a domain is rendered from.
type blueprint struct {
	mark      domainMark
	vcpus     int
	memoryMiB int
	firmware  string // "uefi" or "bios"
	virt      string // "kvm" or "qemu"
	cpuMode   string
	network   Network
	at        attachment
}

// render describes the domain. No emulator stands in it: libvirt knows its own.
func (p blueprint) render() (string, error) {
	name := backends.InstanceName(p.mark.UID)
	zero := uint(0)
	d := libvirtxml.Domain{
		Type:        p.virt,
		Name:        name,
		UUID:        domainUUID(p.mark.UID),
		Title:       "proxy " + p.mark.Proxy,
		Description: "A forward proxy kept by proxyfleet; changes by hand are not kept.",
		Metadata:    &libvirtxml.DomainMetadata{XML: p.mark.element()},
		Memory:      &libvirtxml.DomainMemory{Value: uint(p.memoryMiB), Unit: "MiB"},
		VCPU:        &libvirtxml.DomainVCPU{Placement: "static", Value: uint(p.vcpus)},
		OS: &libvirtxml.DomainOS{
			Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "q35", Type: "hvm"},
		},
		Features:   &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
		CPU:        &libvirtxml.DomainCPU{Mode: p.cpuMode},
		Clock:      &libvirtxml.DomainClock{Offset: "utc"},
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "destroy", // the agent starts it again, and tells
		Devices: &libvirtxml.DomainDeviceList{
			Disks:      []libvirtxml.DomainDisk{p.root(), p.seedDisk()},
			Interfaces: []libvirtxml.DomainInterface{p.network.card(macAddress(p.mark.UID))},
			Controllers: []libvirtxml.DomainController{
				{Type: "virtio-serial", Index: &zero},
				{Type: "usb", Model: "none"},
			},
			Serials: []libvirtxml.DomainSerial{{
				Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
				Target: &libvirtxml.DomainSerialTarget{Port: &zero},
			}},
			Channels: []libvirtxml.DomainChannel{{
				Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
				Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: guestAgentChannel}},
			}},
			// Some guests hang at boot without a video device; nobody looks at it.
			Videos: []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "vga", Heads: 1}}},
			// A kernel that gives up says so, and its guest is started again.
			Panics: []libvirtxml.DomainPanic{{Model: "isa"}},
			// A fresh guest makes its host keys: without a source of entropy that takes minutes.
			RNGs: []libvirtxml.DomainRNG{{
				Model:   "virtio",
				Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
			}},
		},
	}
	if p.firmware == "uefi" {
		// libvirt picks the firmware; without Secure Boot, which a self-made kernel image or an
		// unsigned bootloader would not pass. The variables have a file of the domain's own.
		d.OS.Firmware = "efi"
		d.OS.FirmwareInfo = &libvirtxml.DomainOSFirmwareInfo{Features: []libvirtxml.DomainOSFirmwareFeature{
			{Enabled: "no", Name: "enrolled-keys"}, {Enabled: "no", Name: "secure-boot"},
		}}
		if p.at.nvram != "" {
			d.OS.NVRam = &libvirtxml.DomainNVRam{NVRam: p.at.nvram}
		}
	}
	if p.at.console != "" {
		d.Devices.Serials[0].Log = &libvirtxml.DomainChardevLog{File: p.at.console, Append: "on"}
	}
	return d.Marshal()
}

// root is named as a file or a device, not as a volume of the pool, and its backing chain is
// spelled out: virt-aa-helper makes AppArmor rules from these only.
func (p blueprint) root() libvirtxml.DomainDisk {
	return libvirtxml.DomainDisk{
		Device:       "disk",
		Driver:       &libvirtxml.DomainDiskDriver{Name: "qemu", Type: p.at.root.format, Discard: "unmap"},
		Source:       p.at.root.element(),
		BackingStore: p.at.root.chain(),
		Target:       &libvirtxml.DomainDiskTarget{Dev: rootTarget, Bus: "virtio"},
		Boot:         &libvirtxml.DomainDeviceBoot{Order: 1},
	}
}

// seedDisk is a read-only virtio disk, not a CD-ROM: kernels made for clouds may lack the
// SATA driver that one hangs on, but have virtio-blk, or the root disk would not work
// either. cloud-init finds the seed by its label on any block device.
func (p blueprint) seedDisk() libvirtxml.DomainDisk {
	return libvirtxml.DomainDisk{
		Device:   "disk",
		Driver:   &libvirtxml.DomainDiskDriver{Name: "qemu", Type: p.at.seed.format},
		Source:   p.at.seed.element(),
		Target:   &libvirtxml.DomainDiskTarget{Dev: "vdb", Bus: "virtio"},
		ReadOnly: &libvirtxml.DomainDiskReadOnly{},
	}
}
