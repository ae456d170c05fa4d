package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"proxyfleet/internal/agent"
	"proxyfleet/internal/backends"
)

// configPath is where every command finds the configuration.
type configPath struct {
	Config string `name:"config" short:"c" type:"path" default:"/etc/proxyfleet/agent.yaml" env:"PROXYFLEET_AGENT_CONFIG" help:"Path of agent.yaml (default: ${default})."`
}

// openBackend opens the configured backend as this host's agent does, beside one that may be
// running. A host that is in no installation yet is otherwise, or an error where that is empty.
func (c configPath) openBackend(otherwise backends.Owner) (agent.Config, backends.Backend, error) {
	cfg, err := agent.Load(c.Config)
	if err != nil {
		return cfg, nil, err
	}
	owner, err := agent.ReadOwner(cfg.StateDir)
	if err != nil {
		return cfg, nil, err
	}
	if owner.Installation == "" {
		if owner = otherwise; owner.Installation == "" {
			return cfg, nil, errors.New("this host is in no installation yet; start its agent once")
		}
	}
	b, err := agent.OpenBackend(cfg, owner, slog.New(slog.DiscardHandler))
	if err != nil {
		return cfg, nil, fmt.Errorf("open the backend: %w", err)
	}
	return cfg, b, nil
}

type configCmd struct {
	Sample   sampleCmd   `cmd:"" help:"Print an agent.yaml with every option, its default and its meaning."`
	Validate validateCmd `cmd:"" help:"Read agent.yaml and say what is wrong with it, with line and column."`
}

type sampleCmd struct{}

func (sampleCmd) Run() error {
	_, err := os.Stdout.Write(agent.Sample())
	return err
}

type validateCmd struct{ configPath }

func (c validateCmd) Run() error {
	cfg, err := agent.Load(c.Config)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s is valid: host %s, backend %s\n", c.Config, cfg.Host.Name, cfg.Backend.Type)
	return err
}

type acceptCmd struct {
	configPath
	Incarnation string `arg:"" help:"The incarnation that the agent's log and the host's checks name."`
}

func (c acceptCmd) Run() error {
	cfg, err := agent.Load(c.Config)
	if err != nil {
		return err
	}
	if err := agent.AcceptStreams(cfg.StateDir, c.Incarnation); err != nil {
		return err
	}
	_, err = fmt.Printf("host %s takes assignments from incarnation %s at its next start\n", cfg.Host.Name, c.Incarnation)
	return err
}

type restoreCmd struct {
	configPath
	HostID  string `name:"host-id" required:"" help:"The hostId in the host's record in the inventory."`
	Session uint64 `required:"" help:"The session in that record."`
}

func (c restoreCmd) Run() error {
	cfg, err := agent.Load(c.Config)
	if err != nil {
		return err
	}
	if err := agent.RestoreIdentity(cfg.StateDir, c.HostID, c.Session); err != nil {
		return err
	}
	_, err = fmt.Printf("host %s is host id %s again; at its start it takes up what it finds of its proxies\n", cfg.Host.Name, c.HostID)
	return err
}
