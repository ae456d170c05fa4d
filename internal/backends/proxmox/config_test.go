//go:build pve || proxmox_real

package proxmox

import (
	"strings"
	"testing"

	"proxyfleet/internal/backends"
)

func TestConfigurationThatCannotWorkIsRefusedByItsPath(t *testing.T) {
	owner := backends.Owner{Installation: someMark.Installation, HostID: someMark.HostID}
	good := Config{URLs: []string{"https://pve1:8006"}, TokenFile: "/t", SeedStorage: "seeds"}
	for want, change := range map[string]func(*Config, *Options){
		"":                func(*Config, *Options) {},
		"URL":             func(c *Config, _ *Options) { c.URLs = nil },
		"https":           func(c *Config, _ *Options) { c.URLs = []string{"pve1"} },
		"tokenFile":       func(c *Config, _ *Options) { c.TokenFile = "token" },
		"ca":              func(c *Config, _ *Options) { c.CA = "ca.pem" },
		"exclude":         func(c *Config, _ *Options) { c.CA, c.Fingerprint = "/ca.pem", "/pins" },
		"fingerprint":     func(c *Config, _ *Options) { c.Fingerprint = "AA:BB" },
		"nodes":           func(c *Config, _ *Options) { c.Nodes = []string{"pve1/qemu"} },
		"seedStorage":     func(c *Config, _ *Options) { c.SeedStorage = "" },
		"storage: \"a/b":  func(c *Config, _ *Options) { c.CloneMode, c.Storage = "full", "a/b" },
		"cloneMode":       func(c *Config, _ *Options) { c.CloneMode = "half" },
		"set cloneMode":   func(c *Config, _ *Options) { c.Storage = "ceph" },
		"templateStorage": func(c *Config, _ *Options) { c.TemplateStorage = "some" },
		"network.bridge":  func(c *Config, _ *Options) { c.Network.Bridge = "vmbr0,tag=1" },
		"network.vlan":    func(c *Config, _ *Options) { c.Network.VLAN = 4095 },
		"vmidRange":       func(c *Config, _ *Options) { c.VMIDRange = VMIDRange{Min: 99, Max: 5000} },
		"fewer than":      func(c *Config, _ *Options) { c.VMIDRange = VMIDRange{Min: 1000, Max: 1010} },
		"clonesPer":       func(c *Config, _ *Options) { c.ClonesPerTemplate = -1 },
		"tags":            func(c *Config, _ *Options) { c.Tags = []string{"A B"} },
		"know their own":  func(c *Config, _ *Options) { c.Tags = []string{"pf-x"} },
		"requestTimeout":  func(c *Config, _ *Options) { c.RequestTimeout = -1 },
		"ULIDs":           func(_ *Config, o *Options) { o.Owner.HostID = "a_b" },
		"state directory": func(_ *Config, o *Options) { o.StateDir = "" },
	} {
		c, o := good, Options{Owner: owner, StateDir: "/var/lib/x"}
		change(&c, &o)
		_, err := New(c, backends.HostConfig{}, o)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}
