// Command agent runs on a host: it makes the proxies that are assigned to it real, and
// reports what it sees.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"proxyfleet/internal/program"
)

type cli struct {
	Run           runCmd        `cmd:"" help:"Run the agent until it is told to stop. Proxies keep running."`
	Check         checkCmd      `cmd:"" help:"Check what the configured backend needs, and say what is wrong. Makes, changes and marks no proxy."`
	Images        imagesCmd     `cmd:"" help:"Look after the base images of this host."`
	Config        configCmd     `cmd:"" help:"Work with agent.yaml."`
	AcceptStreams acceptCmd     `cmd:"" name:"accept-streams" help:"Take assignments from streams that were made anew for the same installation."`
	Restore       restoreCmd    `cmd:"" name:"restore-identity" help:"Make a host that was installed anew the host that it was, before its first start."`
	Version       versionCmd    `cmd:"" help:"Print the version."`
	LocalProxy    localProxyCmd `cmd:"" name:"local-proxy" hidden:"" passthrough:"" help:"One proxy of the local backend."`
}

// errChecks makes the exit code 1 after a table that has said why.
var errChecks = errors.New("some checks failed")

func main() {
	var c cli
	k := kong.Parse(&c,
		kong.Name("agent"),
		kong.Description("The proxyfleet agent: makes forward proxies on this host real, as the coordinator assigns them."),
		kong.UsageOnError(),
		kong.BindTo(context.Background(), (*context.Context)(nil)),
	)
	if err := k.Run(); err != nil {
		if !errors.Is(err, errChecks) {
			fmt.Fprintln(os.Stderr, "agent:", err)
		}
		os.Exit(1)
	}
}

type versionCmd struct{}

func (versionCmd) Run() error {
	_, err := fmt.Println(program.Version())
	return err
}
