package pvefake

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Which privilege a config key needs, from check_vm_modify_config_perm of
// qemu-server. Drives, serial ports and tags have their own rules.
var configPrivileges = map[string]string{
	"cores": "CPU", "cpu": "CPU", "cpulimit": "CPU", "cpuunits": "CPU", "numa": "CPU", "smp": "CPU",
	"sockets": "CPU", "vcpus": "CPU",
	"memory": "Memory", "allow-ksm": "Memory", "balloon": "Memory", "shares": "Memory",
	"acpi": "HWType", "hotplug": "HWType", "kvm": "HWType", "machine": "HWType", "scsihw": "HWType",
	"smbios1": "HWType", "tablet": "HWType", "vga": "HWType", "watchdog": "HWType", "audio0": "HWType",
	"bios": "HWType", "keyboard": "Options", "agent": "Options", "autostart": "Options",
	"description": "Options", "localtime": "Options", "migrate_downtime": "Options",
	"migrate_speed": "Options", "name": "Options", "onboot": "Options", "ostype": "Options",
	"protection": "Options", "reboot": "Options", "startdate": "Options", "startup": "Options",
	"tdf": "Options", "template": "Options", "vmgenid": "Options", "rng0": "HWType",
	"boot": "Disk", "bootdisk": "Disk", "vmstatestorage": "Disk",
	"cicustom": "Cloudinit", "cipassword": "Cloudinit", "citype": "Cloudinit", "ciuser": "Cloudinit",
	"ciupgrade": "Cloudinit", "nameserver": "Cloudinit", "searchdomain": "Cloudinit", "sshkeys": "Cloudinit",
}

var (
	numaRE     = regexp.MustCompile(`^numa\d+$`)
	ipconfigRE = regexp.MustCompile(`^ipconfig\d+$`)
	hwOwnRE    = regexp.MustCompile(`^(?:serial|usb|hostpci|virtiofs|unused)\d+$`)
)

// mayConfigure checks the keys that are decided before the VM is looked at.
func (c *Cluster) mayConfigure(who caller, vmid int, keys []string) error {
	path := fmt.Sprintf("/vms/%d", vmid)
	slices.Sort(keys)
	for _, k := range keys {
		switch {
		case driveRE.MatchString(k), k == "cdrom", k == "tags", hwOwnRE.MatchString(k):
			continue
		case numaRE.MatchString(k):
			if err := c.need(who, path, "VM.Config.CPU"); err != nil {
				return err
			}
		case netRE.MatchString(k):
			if err := c.need(who, path, "VM.Config.Network"); err != nil {
				return err
			}
		case ipconfigRE.MatchString(k), configPrivileges[k] == "Cloudinit":
			if err := c.needAny(who, path, "VM.Config.Cloudinit", "VM.Config.Network"); err != nil {
				return err
			}
		case configPrivileges[k] != "":
			if err := c.need(who, path, "VM.Config."+configPrivileges[k]); err != nil {
				return err
			}
			if k == "startup" {
				if err := c.need(who, "/", "Sys.Modify"); err != nil {
					return err
				}
			}
		default:
			return die("only root can set '%s' config", k)
		}
	}
	return nil
}

// mayUseDrives is check_storage_access: the storages and volumes that drives
// refer to.
func (c *Cluster) mayUseDrives(who caller, node string, vmid int, config map[string]string) error {
	for _, k := range sortedDrives(config) {
		d, err := c.parseDrive(k, config[k])
		if err != nil {
			return err
		}
		if d.file == "none" || strings.HasSuffix(d.file, ":cloudinit") {
			continue
		}
		if d.file == "cdrom" {
			if err := c.need(who, "/", "Sys.Console"); err != nil {
				return err
			}
			continue
		}
		if m := newDiskRE.FindStringSubmatch(d.file); m != nil && !d.cdrom() {
			if err := c.need(who, "/storage/"+m[1], "Datastore.AllocateSpace"); err != nil {
				return err
			}
			if err := c.holdsImages(m[1]); err != nil {
				return err
			}
			continue
		}
		st, name, err := c.parse(d.file)
		if err != nil {
			return err
		}
		if err := c.mayRead(who, st, st.on(node)[name], name, vmid); err != nil {
			return err
		}
		if strings.HasPrefix(name, "iso/") && d.opts["media"] != "cdrom" {
			return paramErr(k, "explicit 'media=cdrom' is required for iso images")
		}
	}
	return nil
}

// holdsImages fails unless the storage exists and takes disks.
func (c *Cluster) holdsImages(id string) error {
	st := c.storages[id]
	if st == nil {
		return die("storage '%s' does not exist", id)
	}
	if !slices.Contains(st.Content, "images") {
		return paramErr("storage", fmt.Sprintf("storage '%s' does not support vm images", id))
	}
	return nil
}

func sortedDrives(config map[string]string) []string {
	var out []string
	for k := range config {
		if driveRE.MatchString(k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// tagPolicy is the datacenter's: who may set which tags.
type tagPolicy struct {
	list       bool // user-allow=list: only allowed
	allowed    []string
	registered []string // need Sys.Modify on /
}

// SetTagPolicy limits the tags that may be set or removed without Sys.Modify
// on /: to allowed, when that is not nil, and in any case not registered ones.
func (c *Cluster) SetTagPolicy(allowed, registered []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tags = tagPolicy{list: allowed != nil, allowed: allowed, registered: registered}
}

// mayTag checks every tag that is added or taken away.
func (c *Cluster) mayTag(who caller, vmid int, before, after string) error {
	if err := c.need(who, fmt.Sprintf("/vms/%d", vmid), "VM.Config.Options"); err != nil {
		return err
	}
	if c.allowed(who, "/", false, "Sys.Modify") {
		return nil
	}
	old, now := splitList(before), splitList(after)
	for _, tag := range slices.Concat(now, old) {
		if slices.Contains(old, tag) && slices.Contains(now, tag) {
			continue
		}
		if slices.Contains(c.tags.registered, tag) || c.tags.list && !slices.Contains(c.tags.allowed, tag) {
			return forbidden("/, Sys.Modify for modifying tag '" + tag + "'")
		}
	}
	return nil
}

// normalTags: lower case, sorted, each once, joined by semicolons.
func normalTags(s string) string {
	tags := splitList(strings.ToLower(s))
	slices.Sort(tags)
	return strings.Join(slices.Compact(tags), ";")
}
