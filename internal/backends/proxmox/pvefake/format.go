package pvefake

import (
	"net/netip"
	"regexp"
	"strings"
)

// The named formats of Proxmox's schema that a VM client can reach. A format
// that is not here is not checked; the tests list those.
var formats = map[string]func(string) string{
	"pve-vmid":                       re(`^[1-9][0-9]{2,8}$`, "value does not look like a valid VM ID"),
	"pve-node":                       re(`^(?i:[a-z0-9]([a-z0-9\-]*[a-z0-9])?)$`, "value does not look like a valid node name"),
	"pve-storage-id":                 re(`^(?i:[a-z][a-z0-9\-_.]*[a-z0-9])$`, "storage ID contains illegal characters"),
	"pve-configid":                   re(`^(?i:[a-z][a-z0-9_-]+)$`, "invalid configuration ID"),
	"pve-poolid":                     re(`^[A-Za-z0-9.\-_]+(/[A-Za-z0-9.\-_]+){0,2}$`, "value does not look like a valid pool id"),
	"pve-iface":                      re(`^(?i:[a-z][a-z0-9_]{1,20}([:.]\d+)?)$`, "invalid network interface name"),
	"pve-bridge-id":                  re(`^[-_.\w]+$`, "invalid bridge ID"),
	"pve-userid":                     re(`^[^\s:/]+@[A-Za-z][A-Za-z0-9.\-_]+$`, "value does not look like a valid user name"),
	"dns-name":                       checkDNSName,
	"disk-size":                      re(`^\d+(\.\d+)?[KMGT]?$`, "unable to parse disk size"),
	"mac-addr":                       checkMAC,
	"urlencoded":                     re(`^[-%a-zA-Z0-9_.!~*'()]*$`, "invalid urlencoded string"),
	"pve-tag-list":                   listOf(re(`^(?i:[a-z0-9_][a-z0-9_\-+.]*)$`, "invalid characters in tag")),
	"pve-storage-content":            re(`^(images|rootdir|vztmpl|iso|backup|snippets|import|none)$`, "invalid content type"),
	"pve-volume-id":                  re(volumeIDPattern, "unable to parse volume ID"),
	"pve-volume-id-or-qm-path":       checkQMPath,
	"pve-volume-id-or-absolute-path": re(`^/.*|`+volumeIDPattern, "unable to parse volume ID"),
	"pve-qm-boot":                    checkBoot,
	"pve-qm-bootdisk":                re(`^(ide|sata|scsi|virtio|efidisk|tpmstate)\d+$`, "invalid boot disk"),
	"pve-hotplug-features":           re(`^([01]|((network|disk|cpu|memory|usb|cloudinit)([,; ]|$))*)$`, "unable to parse hotplug option"),
	"pve-startup-order":              re(`^((order=)?\d+|up=\d+|down=\d+)(,((order=)?\d+|up=\d+|down=\d+))*$`, "unable to parse startup options"),
	"pve-task-status-type":           re(`^(ok|error|warning|unknown)$`, "invalid status"),
	"pve-qm-ipconfig":                re(`^(ip=(dhcp|[0-9./]+)|gw=[0-9.]+|ip6=(auto|dhcp|[0-9a-fA-F:./]+)|gw6=[0-9a-fA-F:]+)(,(ip=(dhcp|[0-9./]+)|gw=[0-9.]+|ip6=(auto|dhcp|[0-9a-fA-F:./]+)|gw6=[0-9a-fA-F:]+))*$`, "format error"),
	"pve-qm-cicustom":                re(`^(meta|network|user|vendor)=[^,]+(,(meta|network|user|vendor)=[^,]+)*$`, "format error"),
	"pve-cpuset":                     re(`^\d+(-\d+)?(,\d+(-\d+)?)*$`, "unable to parse cpuset"),
	"address":                        checkAddress,
	"ip":                             checkIP,
	"ipv4":                           checkIP,
	"ipv6":                           checkIP,
	"CIDR":                           checkCIDR,
	"pve-vm-cpu-conf":                re(`^(cputype=)?[\w\-]+(,(flags|hidden|hv-vendor-id|phys-bits|guest-phys-bits|reported-model)=[^,]+)*$`, "format error"),
	"pve-qm-smbios1":                 re(`^(base64|family|manufacturer|product|serial|sku|uuid|version)=[^,]*(,(base64|family|manufacturer|product|serial|sku|uuid|version)=[^,]*)*$`, "format error"),
	"pve-qm-watchdog":                re(`^(model=)?(i6300esb|ib700)(,action=(reset|shutdown|poweroff|pause|debug|none))?$`, "format error"),
	"pve-qm-rng":                     re(`^(source=)?/dev/(u?random|hwrng)(,(max_bytes|period)=\d+)*$`, "format error"),
	"storage-pair":                   re(`^(?i:1|[a-z][a-z0-9\-_.]*[a-z0-9](:[a-z][a-z0-9\-_.]*[a-z0-9])?)$`, "invalid storage pair"),
}

var checkDNSName = re(`^((?i:[a-z0-9]([a-z0-9\-]*[a-z0-9])?)\.)*(?i:[a-z0-9]([a-z0-9\-]*[a-z0-9])?)$`,
	"value does not look like a valid DNS name")

const volumeIDPattern = `^(?i:[a-z][a-z0-9\-_.]*[a-z0-9]):(\S+)$`

func re(pattern, text string) func(string) string {
	rx := regexp.MustCompile(pattern)
	return func(s string) string {
		if rx.MatchString(s) {
			return ""
		}
		return text
	}
}

func listOf(check func(string) string) func(string) string {
	return func(s string) string {
		for _, x := range splitList(s) {
			if err := check(x); err != "" {
				return err
			}
		}
		return ""
	}
}

// splitList splits as PVE::Tools::split_list does: at comma, semicolon, NUL
// and white space.
func splitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(",;\x00 \t\n\r", r) })
}

// checkFormat returns what is wrong with s, or "". name-list is a list of name.
func checkFormat(name, s string) string {
	if f, ok := formats[name]; ok {
		return f(s)
	}
	if base, ok := strings.CutSuffix(name, "-list"); ok {
		if f := formats[base]; f != nil {
			return listOf(f)(s)
		}
	}
	return ""
}

var macRE = regexp.MustCompile(`^(?i:[a-f0-9][02468ace](:[a-f0-9]{2}){5})$`)

func checkMAC(s string) string {
	if macRE.MatchString(s) {
		return ""
	}
	return "value does not look like a valid unicast MAC address"
}

var volumeIDRE = regexp.MustCompile(volumeIDPattern)

func checkQMPath(s string) string {
	if s == "none" || s == "cdrom" || strings.HasPrefix(s, "/") || volumeIDRE.MatchString(s) {
		return ""
	}
	return "unable to parse volume ID '" + s + "'"
}

var bootDevRE = regexp.MustCompile(`^(ide|sata|scsi|virtio|net|usb|hostpci)\d+$`)

func checkBoot(s string) string {
	order, ok := strings.CutPrefix(s, "order=")
	if !ok {
		return re(`^(legacy=)?[acdn]{1,4}$`, "invalid boot format")(s)
	}
	for _, d := range strings.Split(order, ";") {
		if d != "" && !bootDevRE.MatchString(d) {
			return "invalid boot device '" + d + "'"
		}
	}
	return ""
}

func checkIP(s string) string {
	if _, err := netip.ParseAddr(s); err != nil {
		return "value does not look like a valid IP address"
	}
	return ""
}

func checkCIDR(s string) string {
	if _, err := netip.ParsePrefix(s); err != nil {
		return "value does not look like a valid CIDR network"
	}
	return ""
}

func checkAddress(s string) string {
	if checkIP(s) == "" || checkDNSName(s) == "" {
		return ""
	}
	return "value does not look like a valid address"
}
