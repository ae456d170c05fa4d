package main

import (
	"context"

	"proxyfleet/internal/backends/local"
)

// localProxyCmd is one proxy of the local backend. It outlives the agent that started it.
type localProxyCmd struct {
	Args []string `arg:"" optional:""`
}

func (c localProxyCmd) Run(ctx context.Context) error { return local.RunChild(ctx, c.Args) }
