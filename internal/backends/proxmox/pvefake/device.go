package pvefake

import (
	"regexp"
	"slices"
	"strings"
)

var (
	driveRE   = regexp.MustCompile(`^(ide|sata|scsi|virtio)\d+$|^(efidisk0|tpmstate0)$`)
	netRE     = regexp.MustCompile(`^net\d+$`)
	newDiskRE = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9\-_.]*):(\d+(?:\.\d+)?)$`)
	cloudRE   = regexp.MustCompile(`vm-\d+-cloudinit`)
)

// drive is the value of a drive key, such as "local:100/vm-100-disk-0.raw,size=1G".
type drive struct {
	file string
	opts map[string]string // without file
}

func (c *Cluster) configProps() map[string]*property {
	return c.schema["PUT /nodes/{node}/qemu/{vmid}/config"].Parameters.Properties
}

func (c *Cluster) parseDrive(key, value string) (drive, error) {
	vals, err := parsePropertyString(value, c.configProps()[key].Sub)
	if err != "" {
		return drive{}, paramErr(key, "unable to parse drive options")
	}
	d := drive{file: vals["file"], opts: vals}
	delete(vals, "file")
	return d, nil
}

func (d drive) String() string { return printPropertyString(d.file, d.opts) }

func (d drive) cdrom() bool {
	return d.opts["media"] == "cdrom" && !cloudRE.MatchString(d.file) && !strings.HasSuffix(d.file, ":cloudinit")
}

// empty: a CD drive without a medium, or with the host's.
func (d drive) empty() bool { return d.file == "none" || d.file == "cdrom" }

// disks are the keys of a config's drives that hold data of the VM, sorted.
func (c *Cluster) disks(config map[string]string) []string {
	var out []string
	for k, val := range config {
		if !driveRE.MatchString(k) {
			continue
		}
		if d, err := c.parseDrive(k, val); err == nil && !d.cdrom() && !d.empty() {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// nic is the value of a net key.
func (c *Cluster) parseNIC(key, value string) (map[string]string, error) {
	vals, err := parsePropertyString(value, c.configProps()[key].Sub)
	if err != "" {
		return nil, paramErr(key, "unable to parse network options")
	}
	return vals, nil
}

// printNIC writes model=MAC first, as print_net does, with a new MAC if none.
func printNIC(vals map[string]string) string {
	mac := vals["macaddr"]
	if mac == "" {
		mac = newMAC()
	}
	return printPropertyString(vals["model"]+"="+mac, vals, "model", "macaddr")
}

// needBridges asks for SDN.Use on every bridge of the NICs in config.
func (c *Cluster) needBridges(who caller, config map[string]string) error {
	for k, val := range config {
		if !netRE.MatchString(k) {
			continue
		}
		nic, err := c.parseNIC(k, val)
		if err != nil {
			return err
		}
		if nic["bridge"] == "" {
			continue
		}
		path := "/sdn/zones/localnetwork/" + nic["bridge"]
		if nic["tag"] != "" {
			path += "/" + nic["tag"]
		}
		if err := c.need(who, path, "SDN.Use"); err != nil {
			return err
		}
	}
	return nil
}

// bootOrder is the boot key with a device appended or removed.
func bootOrder(boot, add, remove string) string {
	order, ok := strings.CutPrefix(boot, "order=")
	if !ok {
		return boot
	}
	devs := slices.DeleteFunc(strings.Split(order, ";"), func(d string) bool { return d == "" || d == remove })
	if add != "" && !slices.Contains(devs, add) {
		devs = append(devs, add)
	}
	return "order=" + strings.Join(devs, ";")
}
