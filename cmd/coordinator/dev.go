package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/oklog/run"

	"proxyfleet/internal/agent"
	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/natsd"
	"proxyfleet/internal/program"
)

type devCmd struct {
	Store       string `type:"path" placeholder:"DIR" help:"Where the fleet is kept; the same directory is the same fleet. Default: proxyfleet in the user's state directory."`
	Port        int    `default:"4222" help:"Where NATS listens on 127.0.0.1, without a password (default: ${default})."`
	Backend     string `enum:"auto,local,libvirt" default:"auto" help:"auto: as --agent-config says, else libvirt where it works with KVM, else local; local: child processes; libvirt: virtual machines on qemu:///system (default: ${default})."`
	AgentConfig string `type:"path" placeholder:"FILE" help:"An agent.yaml. What it says of nats is left out."`
	Sync        bool   `default:"true" negatable:"" help:"Sync every message to disk, so that what was acked survives a power cut."`
	LogLevel    string `enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error (default: ${default})."`
}

// Run runs a whole fleet until a signal ends it. Proxies keep running.
func (c devCmd) Run(ctx context.Context) (err error) {
	log, err := program.Logger(c.LogLevel, "text")
	if err != nil {
		return err
	}
	if c.Store == "" {
		if c.Store, err = defaultStore(); err != nil {
			return err
		}
	}
	agentCfg, err := c.agentConfig(ctx, log)
	if err != nil {
		return err
	}
	stopTracing, err := startTracing()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopTracing()) }()
	srv, err := c.startNATS(log)
	if err != nil {
		return err
	}
	defer srv.Close() // after everybody who uses it

	cfg, err := parseConfig(nil)
	if err != nil {
		return err
	}
	cfg.Root = agentCfg.Root
	if err := bootstrapDev(ctx, cfg, log, srv.InProcess()); err != nil {
		return err
	}
	a, err := agent.Open(agentCfg, agent.Options{Log: log.With("part", "agent"), Version: program.Version(), NATS: []nats.Option{srv.InProcess()}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	c.greet(log, srv.URL(), agentCfg)

	// The first that ends takes the other along; the server outlives both.
	var g run.Group
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := func(error) { cancel() }
	g.Add(func() error {
		return runCoordinator(ctx, cfg, log.With("part", "coordinator"), "remove "+c.Store, srv.InProcess())
	}, stop)
	g.Add(func() error { return ended(ctx, a.Run(ctx)) }, stop)
	return g.Run()
}

// ended leaves out an error that only repeats that ctx has ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (c devCmd) startNATS(log *slog.Logger) (*natsd.Server, error) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port))
	if c.Port > 0 { // the server would only say that it is not ready in time
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("NATS cannot listen on %s (%w); give another --port, or stop what listens there", addr, err)
		}
		_ = l.Close()
	}
	return natsd.Start(natsd.Config{Port: c.Port, StoreDir: filepath.Join(c.Store, "nats"), SyncAlways: c.Sync, Log: log.With("part", "nats")})
}

// bootstrapDev makes the installation of a new store; in one that has it, it changes
// nothing.
func bootstrapDev(ctx context.Context, cfg config, log *slog.Logger, opts ...nats.Option) error {
	nc, js, err := connect(cfg, log, opts...)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := connected(ctx, nc); err != nil {
		return err
	}
	_, err = bus.Bootstrap(ctx, js, bus.Names{Root: cfg.Root}, bus.BootstrapOptions{MaxHosts: 100, MaxBytes: 256 << 20})
	return err
}

func (c devCmd) greet(log *slog.Logger, url string, a agent.Config) {
	log.Info("a fleet runs here; Ctrl-C ends it, its proxies go on", "store", c.Store, "nats", url, "host", a.Host.Name, "backend", a.Backend.Type)
	if !c.Sync {
		log.Warn("NATS syncs to disk every two minutes only: what was acked may be lost in a power cut")
	}
	log.Info(fmt.Sprintf(`try: nats -s %s pub -J %s.intent.proxy.one '{"name":"one","spec":{"auth":{"username":"me","password":"secret"}}}'`, url, a.Root))
	log.Info(fmt.Sprintf(`then: nats -s %s req %s.api.get one`, url, a.Root))
}

// agentConfig is the given one, or one for this machine.
func (c devCmd) agentConfig(ctx context.Context, log *slog.Logger) (agent.Config, error) {
	if c.AgentConfig == "" {
		host, err := hostLabel()
		if err != nil {
			return agent.Config{}, err
		}
		backend, err := c.choose(ctx, host, log)
		if err != nil {
			return agent.Config{}, err
		}
		return agent.Parse([]byte(agentYAML(backend, host, filepath.Join(c.Store, "agent"))))
	}
	cfg, err := agent.Load(c.AgentConfig)
	if err != nil {
		return agent.Config{}, err
	}
	if c.Backend != "auto" && c.Backend != cfg.Backend.Type {
		return agent.Config{}, fmt.Errorf("--backend is %s, but backend.type in %s is %s", c.Backend, c.AgentConfig, cfg.Backend.Type)
	}
	cfg.NATS = bus.ClientConfig{}
	return cfg, nil
}

// agentYAML is an agent.yaml for this machine.
func agentYAML(backend, host, stateDir string) string {
	head := fmt.Sprintf("host: {name: %q}\nstateDir: %q\n", host, stateDir)
	if backend != "libvirt" {
		return head + "backend: {type: local}\n"
	}
	return head + `backend: {type: libvirt}
images:
  debian-13: {url: "https://cloud.debian.org/images/cloud/trixie/latest/debian-13-genericcloud-amd64.qcow2"}
machineTypes:
  small: {vcpus: 1, memoryMiB: 1024}
defaults: {image: debian-13, machineType: small, diskGiB: 10}
`
}

// hostLabel is this machine's name as a DNS label.
func hostLabel() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("this machine's name: %w", err)
	}
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	if name = strings.Trim(name[:min(len(name), 63)], "-"); name == "" {
		name = "here"
	}
	return name, nil
}

// defaultStore follows the XDG base directory specification.
func defaultStore() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "proxyfleet"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no directory for the fleet; give one with --store: %w", err)
	}
	return filepath.Join(home, ".local", "state", "proxyfleet"), nil
}
