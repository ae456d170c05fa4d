package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"proxyfleet/internal/agent"
	"proxyfleet/internal/backends"
)

// machineChecks bounds finding out what this machine can do.
const machineChecks = 10 * time.Second

// choose decides what runs the proxies of this store: what was chosen before, so that the
// next start finds the same fleet; else virtual machines where libvirt and KVM work here,
// and processes where they do not.
func (c devCmd) choose(ctx context.Context, host string, log *slog.Logger) (string, error) {
	if c.Backend != "auto" {
		return c.Backend, nil
	}
	file := filepath.Join(c.Store, "backend")
	before, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(before)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("what this fleet's proxies are: %w", err)
	}
	backend := "libvirt"
	if why := c.noLibvirt(ctx, host, log); why != "" {
		backend = "local"
		log.Info("proxies are processes here", "because", why)
	}
	if err := os.MkdirAll(c.Store, 0o700); err != nil {
		return "", err
	}
	return backend, renameio.WriteFile(file, []byte(backend+"\n"), 0o600)
}

// noLibvirt says why libvirt with KVM does not work on this machine; empty: it does.
func (c devCmd) noLibvirt(ctx context.Context, host string, log *slog.Logger) string {
	cfg, err := agent.Parse([]byte(agentYAML("libvirt", host, filepath.Join(c.Store, "agent"))))
	if err != nil {
		return err.Error()
	}
	nobody := backends.Owner{Installation: "none", HostID: "none"} // a check marks nothing
	b, err := agent.OpenBackend(cfg, nobody, log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = b.Close() }()
	ctx, cancel := context.WithTimeout(ctx, machineChecks)
	defer cancel()
	for _, h := range b.Check(ctx) {
		if h.Code != backends.CheckOK {
			return h.Target + ": " + h.Code + ", " + h.Message
		}
		if virt, ok := h.Details["virtType"]; ok && virt != "kvm" {
			return "KVM does not work: " + h.Details["whyNotKVM"]
		}
	}
	return ""
}
