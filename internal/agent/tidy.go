package agent

import (
	"context"
	"log/slog"
	"time"

	"proxyfleet/internal/backends"
)

// tidyEvery is how often a backend removes what it gave up, and tidyBudget how long that may
// take. Backends leave alone what is younger than an hour.
const (
	tidyEvery  = time.Hour
	tidyBudget = 10 * time.Minute
)

// tidy has the backend tidy up now and every hour, until ctx ends. It fails nothing: what stays
// is only in the way of other things' room.
func tidy(ctx context.Context, t backends.Tidier, log *slog.Logger) error {
	for {
		within, cancel := context.WithTimeout(ctx, tidyBudget)
		err := t.Tidy(within)
		cancel()
		if err != nil && ctx.Err() == nil {
			log.Warn("what was given up on this host was not all removed; it is tried again", "error", err, "in", tidyEvery)
		}
		if !sleep(ctx, tidyEvery) {
			return nil
		}
	}
}
