// Command coordinator decides which host makes which proxy, and keeps the inventory.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"proxyfleet/internal/backends/local"
	"proxyfleet/internal/program"
)

type cli struct {
	Run       runCmd       `cmd:"" help:"Lead the fleet, or stand by while another coordinator leads."`
	Bootstrap bootstrapCmd `cmd:"" help:"Make the streams and buckets of a new installation. Once; again it changes nothing."`
	Dev       devCmd       `cmd:"" help:"A whole fleet in one process: NATS, a coordinator and an agent for this machine."`
	Config    configCmd    `cmd:"" help:"Work with coordinator.yaml."`
	Version   versionCmd   `cmd:"" help:"Print the version."`

	LocalProxy localProxyCmd `cmd:"" name:"local-proxy" hidden:"" passthrough:"" help:"One proxy of the local backend."`
}

func main() {
	// A second signal ends the process at once: stop is called with the first.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	k := kong.Parse(&cli{},
		kong.Name("coordinator"),
		kong.Description("The proxyfleet coordinator: binds proxies to hosts as people declare them, and shows what became of them."),
		kong.UsageOnError(),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err := k.Run(); err != nil && !(errors.Is(err, context.Canceled) && ctx.Err() != nil) {
		fmt.Fprintln(os.Stderr, "coordinator:", err)
		os.Exit(1)
	}
}

// localProxyCmd is one proxy of the local backend. It outlives the process that started it.
type localProxyCmd struct {
	Args []string `arg:"" optional:""`
}

func (c localProxyCmd) Run(ctx context.Context) error { return local.RunChild(ctx, c.Args) }

type versionCmd struct{}

func (versionCmd) Run() error {
	_, err := fmt.Println(program.Version())
	return err
}
