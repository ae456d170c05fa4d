package agent

import (
	"time"

	"github.com/goccy/go-yaml/ast"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

// Config is agent.yaml. [Load] reads it; [Sample] shows every field with its meaning.
type Config struct {
	Host     HostConfig       `yaml:"host"`
	NATS     bus.ClientConfig `yaml:"nats"`
	Root     string           `yaml:"root"`     // of all subjects, default bus.DefaultRoot
	StateDir string           `yaml:"stateDir"` // absolute; default DefaultStateDir
	Backend  BackendConfig    `yaml:"backend"`

	// Images, machine types, defaults and limits, shared by all backends.
	backends.HostConfig `yaml:",inline"`

	Concurrency Concurrency `yaml:"concurrency"`
	Intervals   Intervals   `yaml:"intervals"`
	Probe       ProbeConfig `yaml:"probe"`
	HTTP        HTTPConfig  `yaml:"http"`
	Log         LogConfig   `yaml:"log"`
}

// HostConfig says who this host is.
type HostConfig struct {
	Name   string            `yaml:"name"` // a DNS label, never an FQDN
	Zone   string            `yaml:"zone"`
	Labels map[string]string `yaml:"labels"`
}

// BackendConfig is the backend's type with its own keys, which stay undecoded until the
// backend is known: see [OpenBackend].
type BackendConfig struct {
	Type string
	node ast.Node // the mapping without "type", for errors with positions
}

// Concurrency bounds calls to the backend over all proxies. Deletions have slots of their
// own, so that slow creates (a download) never hold them up.
type Concurrency struct {
	Ensure int `yaml:"ensure"` // default 4
	Delete int `yaml:"delete"` // default 4
	Read   int `yaml:"read"`   // reads and probes, default 16
}

// Intervals are how often things happen that no message or event asks for. All but the
// retries are spread by a tenth either way.
type Intervals struct {
	Beat     time.Duration `yaml:"beat"`     // signs of life, default 5s
	Check    time.Duration `yaml:"check"`    // of the host's targets, default 1m
	List     time.Duration `yaml:"list"`     // full listing for what events missed, default 5m
	Grace    time.Duration `yaml:"grace"`    // leftovers younger than this are not reported, default 10m
	RetryMin time.Duration `yaml:"retryMin"` // first wait after a failure, default 1s
	RetryMax time.Duration `yaml:"retryMax"` // longest wait after failures, default 2m
}

// ProbeConfig is how the agent asks a proxy whether it answers.
type ProbeConfig struct {
	Disabled bool          `yaml:"disabled"` // an address is enough to be Running
	Interval time.Duration `yaml:"interval"` // default 30s
	Timeout  time.Duration `yaml:"timeout"`  // default 3s
	Failures int           `yaml:"failures"` // in a row until Degraded, default 3
}

// HTTPConfig is the listener for metrics and health.
type HTTPConfig struct {
	Address string `yaml:"address"` // host:port; empty: none
}

// LogConfig is how the log looks.
type LogConfig struct {
	Level  string `yaml:"level"`  // debug, info (default), warn, error
	Format string `yaml:"format"` // text (default) or json
}

// DefaultStateDir is where systemd's StateDirectory puts it.
const DefaultStateDir = "/var/lib/proxyfleet"

// setDefaults fills what was left out.
func (c *Config) setDefaults() {
	orText(&c.Root, bus.DefaultRoot)
	orText(&c.StateDir, DefaultStateDir)
	orText(&c.Log.Level, "info")
	orText(&c.Log.Format, "text")
	orCount(&c.Concurrency.Ensure, 4)
	orCount(&c.Concurrency.Delete, 4)
	orCount(&c.Concurrency.Read, 16)
	orTime(&c.Intervals.Beat, 5*time.Second)
	orTime(&c.Intervals.Check, time.Minute)
	orTime(&c.Intervals.List, 5*time.Minute)
	orTime(&c.Intervals.Grace, 10*time.Minute)
	orTime(&c.Intervals.RetryMin, time.Second)
	orTime(&c.Intervals.RetryMax, 2*time.Minute)
	c.Probe.Disabled = c.Probe.Disabled || c.Backend.Type == "sim" // nothing listens on simulated addresses
	orTime(&c.Probe.Interval, 30*time.Second)
	orTime(&c.Probe.Timeout, 3*time.Second)
	orCount(&c.Probe.Failures, 3)
}

func orText(s *string, def string) {
	if *s == "" {
		*s = def
	}
}

func orCount(n *int, def int) {
	if *n == 0 {
		*n = def
	}
}

func orTime(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}
