package proxmox

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"proxyfleet/internal/backends/proxmox/pve"
)

// property is one part of an option such as "virtio=BC:24:…,bridge=vmbr0,tag=5". Parts
// without a key are the option's default key.
type property struct{ key, value string }

func properties(option string) []property {
	var out []property
	for _, part := range strings.Split(option, ",") {
		if strings.Trim(part, "=") == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			key, value = "", strings.TrimLeft(part, "=")
		}
		out = append(out, property{key, value})
	}
	return out
}

func joinProperties(ps []property) string {
	parts := make([]string, 0, len(ps))
	for _, p := range ps {
		if p.key == "" {
			parts = append(parts, p.value)
		} else {
			parts = append(parts, p.key+"="+p.value)
		}
	}
	return strings.Join(parts, ",")
}

func get(ps []property, key string) string {
	for _, p := range ps {
		if p.key == key {
			return p.value
		}
	}
	return ""
}

// set changes or appends key; an empty value drops it.
func set(ps []property, key, value string) []property {
	out := slices.DeleteFunc(slices.Clone(ps), func(p property) bool { return value == "" && p.key == key })
	for i := range out {
		if out[i].key == key {
			out[i].value = value
			return out
		}
	}
	if value == "" {
		return out
	}
	return append(out, property{key, value})
}

// netMAC is the MAC of a network option, in lower case: "virtio=<mac>,…" or
// "model=virtio,macaddr=<mac>,…". Empty without one.
func netMAC(option string) string {
	for _, p := range properties(option) {
		if strings.Count(p.value, ":") == 5 && len(p.value) == 17 {
			return strings.ToLower(p.value)
		}
	}
	return ""
}

// rewire moves a network option to another bridge and VLAN. Writing the option replaces
// all of it, so everything else, the MAC above all, is written back. The link is put up.
func rewire(option string, n Network) string {
	ps := properties(option)
	if n.Bridge != "" {
		ps = set(ps, "bridge", n.Bridge)
	}
	switch {
	case n.VLAN == 0 && n.Bridge != "":
		ps = set(ps, "tag", "")
	case n.VLAN != 0:
		ps = set(ps, "tag", strconv.Itoa(n.VLAN))
	}
	return joinProperties(set(ps, "link_down", ""))
}

// agentOn switches the guest agent on in its option, and keeps the rest. Its default key is
// "enabled".
func agentOn(option string) string {
	ps := set(properties(option), "", "")
	return joinProperties(append([]property{{"enabled", "1"}}, set(ps, "enabled", "")...))
}

// hasAgent reports whether an agent option is on.
func hasAgent(option string) bool {
	ps := properties(option)
	return get(ps, "") == "1" || get(ps, "enabled") == "1"
}

// isDiskSlot reports a configuration key that may hold a disk or a CD drive.
func isDiskSlot(key string) bool {
	for _, bus := range []string{"scsi", "virtio", "sata", "ide"} {
		if n, ok := strings.CutPrefix(key, bus); ok {
			_, err := strconv.Atoi(n)
			return err == nil
		}
	}
	return false
}

func isCD(option string) bool { return get(properties(option), "media") == "cdrom" }

// volumeOf is the volume of a disk option: "local:100/vm-100-disk-0.qcow2".
func volumeOf(option string) string {
	ps := properties(option)
	if v := get(ps, ""); v != "" {
		return v
	}
	return get(ps, "file")
}

// storageOf is the storage of a volume.
func storageOf(volume string) string {
	name, _, ok := strings.Cut(volume, ":")
	if !ok {
		return ""
	}
	return name
}

// isCloudInit reports a drive that PVE itself fills with cloud-init data.
func isCloudInit(option string) bool {
	v := volumeOf(option)
	return strings.Contains(v, "cloudinit")
}

// disks are the keys of a configuration's disks, CD drives and cloud-init drives left out,
// but EFI and TPM disks included.
func disks(conf pve.VMConfig) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		small := strings.HasPrefix(key, "efidisk") || strings.HasPrefix(key, "tpmstate")
		if small || isDiskSlot(key) && !isCD(conf[key]) && !isCloudInit(conf[key]) {
			if volumeOf(conf[key]) != "none" {
				out = append(out, key)
			}
		}
	}
	return out
}

// bootDisk is the key of the disk that a VM boots from, and its size in bytes; 0: not said.
func bootDisk(conf pve.VMConfig) (key string, size int64, err error) {
	all := slices.DeleteFunc(disks(conf), func(k string) bool { return !isDiskSlot(k) })
	order := strings.FieldsFunc(get(properties(conf["boot"]), "order"), func(r rune) bool { return r == ';' })
	for _, k := range append(order, conf["bootdisk"]) {
		if slices.Contains(all, k) {
			size, err := parseSize(get(properties(conf[k]), "size"))
			return k, size, err
		}
	}
	if len(all) == 1 {
		size, err := parseSize(get(properties(conf[all[0]]), "size"))
		return all[0], size, err
	}
	return "", 0, fmt.Errorf("its boot order names none of its disks (%s)", strings.Join(all, ", "))
}

// parseSize reads a disk's size: "2560M", "10G". Empty is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	unit := int64(1)
	switch text[len(text)-1] {
	case 'K':
		unit = 1 << 10
	case 'M':
		unit = 1 << 20
	case 'G':
		unit = 1 << 30
	case 'T':
		unit = 1 << 40
	}
	if unit > 1 {
		text = text[:len(text)-1]
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, fmt.Errorf("size %q is not one of Proxmox VE's", text)
	}
	return int64(n * float64(unit)), nil
}

// cdSlot is where the seed goes: the slot that has it, else ide2 where that is free or a CD
// drive, else another free one.
func cdSlot(conf pve.VMConfig, volume string) (string, error) {
	for _, key := range slices.Sorted(maps.Keys(conf)) {
		if isDiskSlot(key) && volumeOf(conf[key]) == volume {
			return key, nil
		}
	}
	slots := []string{"ide2", "ide0", "ide1", "ide3", "sata0", "sata1", "sata2", "sata3", "sata4", "sata5"}
	if isCD(conf["ide2"]) {
		return "ide2", nil
	}
	for _, s := range slots {
		if conf[s] == "" {
			return s, nil
		}
	}
	return "", fmt.Errorf("none of %s is free for the seed", strings.Join(slots, ", "))
}
