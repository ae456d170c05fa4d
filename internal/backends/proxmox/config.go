package proxmox

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"time"

	"proxyfleet/internal/backends"
)

// Config is the backend's part of agent.yaml, beside what all backends share.
type Config struct {
	// URLs are the cluster's API endpoints, https://host:8006; any node will do, several
	// let the agent go on when one is down.
	URLs []string `yaml:"urls"`
	// TokenFile has the API token, one line: user@realm!tokenid=secret. It is read again when
	// it changes.
	TokenFile string `yaml:"tokenFile"`
	// CA is a PEM file with the cluster's CA (/etc/pve/pve-root-ca.pem), read again when it
	// changes. Fingerprint instead pins the servers' certificates: SHA-256 in hex, one for
	// each endpoint, separated by commas; or an absolute path of a file with them. Without
	// either the system's CAs hold.
	CA          string `yaml:"ca"`
	Fingerprint string `yaml:"fingerprint"`
	// Nodes that may get proxies. Empty: all.
	Nodes []string `yaml:"nodes"`
	// TemplateStorage says which templates serve which nodes: "any" (the default) a
	// template's own node, and every node where all its disks are on shared storage;
	// "local" its own node only; "shared" only templates that are wholly on shared storage.
	TemplateStorage string `yaml:"templateStorage"`
	// SeedStorage gets the seeds, ISO images of a few hundred KiB. It must take content "iso",
	// and the token must be allowed to remove from it (Datastore.Allocate): best a
	// small one of its own, shared, since a seed on a node's own storage keeps its VM from
	// migrating.
	SeedStorage string `yaml:"seedStorage"`
	// Storage gets the disks of full clones. Empty: where the template's are.
	Storage   string `yaml:"storage"`
	CloneMode string `yaml:"cloneMode"` // "linked" (the default) or "full"
	// Network is what the card of a proxy is attached to.
	Network Network `yaml:"network"`
	// VMIDRange holds the VMIDs of proxies. Default 100000 to 199999.
	VMIDRange VMIDRange `yaml:"vmidRange"`
	// ClonesPerTemplate bounds clones of one template that run at once. Default 2.
	ClonesPerTemplate int `yaml:"clonesPerTemplate"`
	// Tags are set on each VM beside our own. Where the datacenter has registered tags, they
	// must be among them.
	Tags []string `yaml:"tags"`
	// IPv6 reports global IPv6 addresses of a guest too.
	IPv6 bool `yaml:"ipv6"`
	// RequestTimeout is how long an endpoint may take to answer. Default 30 s.
	RequestTimeout time.Duration `yaml:"requestTimeout"`
	// LockTimeout is how long a call waits for a lock of a VM. Default 1 min.
	LockTimeout time.Duration `yaml:"lockTimeout"`
	// ShutdownTimeout is how long a guest may take to shut down before it is switched off.
	// Default 60 s.
	ShutdownTimeout time.Duration `yaml:"shutdownTimeout"`
}

// Network is where net0 goes. Its MAC, model and other options stay the template's.
type Network struct {
	Bridge string `yaml:"bridge"` // empty: the template's
	VLAN   int    `yaml:"vlan"`   // 1 to 4094; 0: none, or the template's where bridge is empty
}

// VMIDRange is inclusive.
type VMIDRange struct {
	Min int `yaml:"min"` // at least 100
	Max int `yaml:"max"` // at most 999999999
}

// Options are what an agent gives beside configuration.
type Options struct {
	Owner backends.Owner
	Log   *slog.Logger
	// StateDir is a directory of the agent's own; absolute. Records of running clones are
	// kept below it.
	StateDir string
	// Poll is how often a VM that is about to change is looked at. Default 1 s; tests are in
	// more of a hurry.
	Poll time.Duration
}

// startTimeout is how long a VM may take to be running after its start task has ended,
// which under HA only asks for it.
const startTimeout = time.Minute

var (
	// PVE's own formats: pve-node, pve-storage-id, pve-tag, and names of Linux bridges and
	// of virtual networks.
	nodeForm    = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)
	storageForm = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9._-]{0,98}[a-zA-Z0-9]$`)
	tagForm     = regexp.MustCompile(`^[a-z0-9_][a-z0-9_.+-]{0,63}$`)
	bridgeForm  = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]{0,14}$`)
	// ownerForm is what a seed's name can carry.
	ownerForm = regexp.MustCompile(`^[0-9A-Za-z-]{1,40}$`)
)

func (c Config) withDefaults() Config {
	if c.TemplateStorage == "" {
		c.TemplateStorage = "any"
	}
	if c.CloneMode == "" {
		c.CloneMode = "linked"
	}
	if c.VMIDRange == (VMIDRange{}) {
		c.VMIDRange = VMIDRange{Min: 100000, Max: 199999}
	}
	if c.ClonesPerTemplate == 0 {
		c.ClonesPerTemplate = 2
	}
	for d, def := range map[*time.Duration]time.Duration{
		&c.RequestTimeout: 30 * time.Second, &c.LockTimeout: time.Minute, &c.ShutdownTimeout: time.Minute,
	} {
		if *d == 0 {
			*d = def
		}
	}
	return c
}

// validate reports the first setting that cannot be used, by its path in the file. URLs and
// fingerprints are the client's to judge.
func (c Config) validate() error {
	if !filepath.IsAbs(c.TokenFile) {
		return fmt.Errorf("tokenFile: %q is not an absolute path", c.TokenFile)
	}
	if c.CA != "" && !filepath.IsAbs(c.CA) {
		return fmt.Errorf("ca: %q is not an absolute path", c.CA)
	}
	for _, n := range c.Nodes {
		if !nodeForm.MatchString(n) {
			return fmt.Errorf("nodes: %q is no node's name", n)
		}
	}
	if !storageForm.MatchString(c.SeedStorage) {
		return fmt.Errorf("seedStorage: %q is no storage's name; it must be given", c.SeedStorage)
	}
	switch {
	case c.Storage != "" && !storageForm.MatchString(c.Storage):
		return fmt.Errorf("storage: %q is no storage's name", c.Storage)
	case c.CloneMode != "linked" && c.CloneMode != "full":
		return fmt.Errorf("cloneMode: %q is neither linked nor full", c.CloneMode)
	case c.Storage != "" && c.CloneMode != "full":
		return errors.New("storage: only full clones can go to another storage; set cloneMode: full")
	case c.TemplateStorage != "any" && c.TemplateStorage != "local" && c.TemplateStorage != "shared":
		return fmt.Errorf("templateStorage: %q is none of any, local, shared", c.TemplateStorage)
	case c.Network.Bridge != "" && !bridgeForm.MatchString(c.Network.Bridge):
		return fmt.Errorf("network.bridge: %q is no bridge's name", c.Network.Bridge)
	case c.Network.VLAN < 0 || c.Network.VLAN > 4094:
		return fmt.Errorf("network.vlan: %d is not between 1 and 4094", c.Network.VLAN)
	case c.ClonesPerTemplate < 1:
		return fmt.Errorf("clonesPerTemplate: %d is not positive", c.ClonesPerTemplate)
	}
	if r := c.VMIDRange; r.Min < 100 || r.Max > 999999999 || r.Max-r.Min < probes {
		return fmt.Errorf("vmidRange: %d to %d is not within 100 to 999999999, or has fewer than %d numbers", r.Min, r.Max, probes+1)
	}
	for _, t := range c.Tags {
		if !tagForm.MatchString(t) {
			return fmt.Errorf("tags: %q is no tag in lower case", t)
		}
		if isOwnerTag(t) {
			return fmt.Errorf("tags: %q begins as the tags do by which agents know their own VMs", t)
		}
	}
	if c.RequestTimeout < 0 || c.LockTimeout < 0 || c.ShutdownTimeout < time.Second {
		return errors.New("requestTimeout, lockTimeout and shutdownTimeout must be positive, the last at least 1s")
	}
	return nil
}
