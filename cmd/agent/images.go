package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"proxyfleet/internal/agent"
	"proxyfleet/internal/backends"
)

// imagesCmd looks after the base images of this host. Its commands work beside a running
// agent.
type imagesCmd struct {
	List  imagesListCmd  `cmd:"" help:"Print the base images that are here, those first that were not asked for the longest, and what fetches are at or have left."`
	Pull  imagesPullCmd  `cmd:"" help:"Fetch an image of the configuration, so that the first proxy need not wait for it."`
	Prune imagesPruneCmd `cmd:"" help:"Remove what fetches have left, and base images that nothing is built on until the others take no more than --max-gib."`
}

type imagesListCmd struct{ configPath }

func (c imagesListCmd) Run(ctx context.Context) error {
	return withImages(c.configPath, func(k backends.ImageKeeper, _ agent.Config) error {
		found, err := k.ListImages(ctx)
		if err != nil {
			return err
		}
		return printImages(os.Stdout, found, time.Now())
	})
}

type imagesPullCmd struct {
	configPath
	Key string `arg:"" help:"Key under images in agent.yaml."`
}

func (c imagesPullCmd) Run(ctx context.Context) error {
	return withImages(c.configPath, func(k backends.ImageKeeper, _ agent.Config) error {
		got, err := k.PullImage(ctx, c.Key, progress(os.Stderr))
		if err != nil {
			return err
		}
		_, err = fmt.Printf("%s %s\n", got.Digest, got.Path)
		return err
	})
}

// progress prints each step, and of each every tenth per cent.
func progress(w io.Writer) func(backends.Progress) {
	last := backends.Progress{Percent: -1}
	return func(now backends.Progress) {
		now.Percent -= now.Percent % 10
		if now != last {
			last = now
			_, _ = fmt.Fprintf(w, "%s %d %%\n", now.Step, now.Percent)
		}
	}
}

type imagesPruneCmd struct {
	configPath
	MaxGiB int `name:"max-gib" default:"-1" help:"What may stay, in GiB; by default limits.imageCacheGiB, and without that nothing that is unused."`
}

func (c imagesPruneCmd) Run(ctx context.Context) error {
	return withImages(c.configPath, func(k backends.ImageKeeper, cfg agent.Config) error {
		most := int64(c.MaxGiB)
		if most < 0 {
			most = int64(cfg.Limits.ImageCacheGiB)
		}
		removed, err := k.PruneImages(ctx, most<<30)
		for _, b := range removed {
			if _, err := fmt.Println("removed", b.Path); err != nil {
				return err
			}
		}
		return err
	})
}

// withImages opens the configured backend as this host's agent, and runs f with it.
func withImages(path configPath, f func(backends.ImageKeeper, agent.Config) error) error {
	cfg, b, err := path.openBackend(backends.Owner{})
	if err != nil {
		return err
	}
	keeper, ok := b.(backends.ImageKeeper)
	if !ok {
		return errors.Join(fmt.Errorf("the backend %s keeps no images", cfg.Backend.Type), b.Close())
	}
	return errors.Join(f(keeper, cfg), b.Close())
}

// printImages writes a table.
func printImages(w io.Writer, found []backends.BaseImage, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "DIGEST\tFORMAT\tMIB\tDISK MIB\tASKED FOR\tIN USE\tSOURCE\tPATH")
	for _, b := range found {
		use := "no"
		if b.InUse {
			use = "yes"
		}
		digest, format, disk, asked := fmt.Sprintf("%.19s…", b.Digest), b.Format, strconv.FormatInt(b.VirtualBytes>>20, 10), "-"
		if b.Unfinished {
			digest, format, disk = "unfinished", "-", "-"
		}
		if !b.Asked.IsZero() {
			asked = now.Sub(b.Asked).Truncate(time.Minute).String() + " ago"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", digest, format, b.Bytes>>20, disk, asked, use, cmp.Or(b.Source, "-"), b.Path)
	}
	return t.Flush()
}
