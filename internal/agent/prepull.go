package agent

import (
	"context"
	"log/slog"
	"time"

	"proxyfleet/internal/backends"
)

// askAgain is how often images of prePull are asked for once they are there. It is shorter
// than the time for which pruning spares what was asked for.
const askAgain = 30 * time.Minute

// puller brings the images of prePull before anybody asks for them, and keeps them.
type puller struct {
	keeper backends.ImageKeeper
	keys   []string
	policy policy
	log    *slog.Logger
	// say sets the verdict on a target, see [Agent.say].
	say func(target, code, message string)
}

// run works until ctx ends. One image is fetched at a time, so that proxies that are made
// meanwhile get their share of the network; one that fails lets the others go first.
func (p puller) run(ctx context.Context) error {
	failures := map[string]int{}
	for {
		wait := askAgain
		for _, key := range p.keys {
			err := p.pull(ctx, key)
			if ctx.Err() != nil {
				return nil
			}
			if err == nil {
				failures[key] = 0
				p.say("image/"+key, "", "")
				continue
			}
			failures[key]++
			p.log.Warn("an image was not fetched in advance; it is tried again", "image", key, "error", err)
			p.say("image/"+key, backends.CheckAPIError, "not fetched in advance, it is tried again: "+asError(err).Message)
			wait = min(wait, backoff(failures[key], p.policy.RetryMin, p.policy.RetryMax, p.policy.Spread()))
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

func (p puller) pull(ctx context.Context, key string) error {
	last := ""
	_, err := p.keeper.PullImage(ctx, key, func(now backends.Progress) {
		if now.Step != last { // a download reports its step a hundred times
			last = now.Step
			p.log.Info("fetching an image in advance", "image", key, "step", now.Step)
		}
	})
	return err
}
