package gcp

import (
	"log/slog"
	"net/http"
	"time"

	"proxyfleet/internal/backends"
)

// Config is the backend's part of agent.yaml, beside what all backends share. One agent
// serves one project; several projects have several agents.
type Config struct {
	Project string `yaml:"project"`
	// Zones that may get proxies, in the order of preference: zones, or regions, which stand for
	// all of their zones. A zone without stock makes the next one be tried.
	Zones []string `yaml:"zones"`

	// CredentialsFile is a JSON file of any kind that Google's libraries read. Empty:
	// Application Default Credentials.
	CredentialsFile string `yaml:"credentialsFile"`
	// Impersonate is the e-mail of a service account that the credentials may impersonate.
	// Delegates is the chain of accounts on the way to it.
	Impersonate string    `yaml:"impersonate"`
	Delegates   []string  `yaml:"delegates"`
	Endpoints   Endpoints `yaml:"endpoints"`

	// Network is a VPC network, by name, or by path (projects/<host project>/global/networks/<name>)
	// for a shared one. Default "default".
	Network string `yaml:"network"`
	// Subnetwork by name, in the network's project, or by path. Empty: the one that an auto mode
	// network has.
	Subnetwork string `yaml:"subnetwork"`
	// Address is where proxies that do not ask for either are reached: "external" (the default)
	// or "internal".
	Address string `yaml:"address"`
	// ReservedAddress gives each proxy a static address, which stays the same for the life of its
	// uid in one region, and is released with it.
	ReservedAddress bool `yaml:"reservedAddress"`
	// IPv6 gives proxies an IPv6 address as well; the subnetwork must be dual-stack.
	IPv6     bool     `yaml:"ipv6"`
	Firewall Firewall `yaml:"firewall"`
	// Tags are network tags beside the one by which a proxy's own firewall rule finds it.
	Tags []string `yaml:"tags"`
	// Labels are set on instances and disks beside our own.
	Labels map[string]string `yaml:"labels"`

	// ServiceAccount of the instances. Default none: a proxy needs none, and without one its
	// metadata server has no token to give.
	ServiceAccount ServiceAccount `yaml:"serviceAccount"`
	// ShieldedVM switches secure boot, vTPM and integrity monitoring on. Default true.
	ShieldedVM *bool `yaml:"shieldedVM"`
	// OSLogin switches OS Login on, so that IAM says who may log in. Default true; false leaves
	// that to the project.
	OSLogin *bool `yaml:"osLogin"`

	// DiskType is the boot disks'. Default pd-balanced.
	DiskType string `yaml:"diskType"`
	// Preemption says what happens to a spot instance that was taken away: "recreate" (the default)
	// makes it anew, in another zone if need be; "delete" removes it and reports that there is no
	// room, so that the proxy is placed anew.
	Preemption string `yaml:"preemption"`

	// RequestTimeout is how long one request may take. Default 30 s.
	RequestTimeout time.Duration `yaml:"requestTimeout"`
}

// Endpoints replace Google's, for private access and for tests. Scheme, host and port.
type Endpoints struct {
	Compute         string `yaml:"compute"`         // default https://compute.googleapis.com
	ResourceManager string `yaml:"resourceManager"` // default https://cloudresourcemanager.googleapis.com
}

// Firewall says whether rules are made for proxies.
type Firewall struct {
	// Manage makes a rule for each proxy that has client networks, which lets those, and nobody
	// else, reach its port. Default true. False: somebody else's rules let clients in, see Tags.
	Manage *bool `yaml:"manage"`
	// Priority of the rules, 0 to 65535, lower wins. Default 1000, GCE's own.
	Priority *int `yaml:"priority"`
}

// ServiceAccount is what an instance's programs act as.
type ServiceAccount struct {
	Email  string   `yaml:"email"`
	Scopes []string `yaml:"scopes"` // default cloud-platform: IAM alone says what it may
}

// Options are what an agent gives beside configuration.
type Options struct {
	Owner backends.Owner
	Log   *slog.Logger
	// StateDir is a directory of the agent's own; absolute. Records of attempts are kept below it.
	StateDir string
	// Transport carries the requests, those for tokens included. Default: as [http.DefaultTransport].
	Transport http.RoundTripper
	// Poll is how often an operation, or an instance that is about to change, is looked at; it
	// grows to five times that. Default 1 s; tests are in more of a hurry.
	Poll time.Duration
}

const (
	preemptRecreate = "recreate"
	preemptDelete   = "delete"

	external = "external"
	internal = "internal"
)

func (c Config) withDefaults() Config {
	for s, def := range map[*string]string{
		&c.Network: "default", &c.Address: external, &c.DiskType: "pd-balanced", &c.Preemption: preemptRecreate,
		&c.Endpoints.Compute: "https://compute.googleapis.com", &c.Endpoints.ResourceManager: "https://cloudresourcemanager.googleapis.com",
	} {
		if *s == "" {
			*s = def
		}
	}
	for b, def := range map[**bool]bool{&c.ShieldedVM: true, &c.OSLogin: true, &c.Firewall.Manage: true} {
		if *b == nil {
			*b = &def
		}
	}
	if c.Firewall.Priority == nil {
		c.Firewall.Priority = new(int)
		*c.Firewall.Priority = 1000
	}
	if c.ServiceAccount.Email != "" && len(c.ServiceAccount.Scopes) == 0 {
		c.ServiceAccount.Scopes = []string{cloudPlatform}
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = 30 * time.Second
	}
	return c
}
