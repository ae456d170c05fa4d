package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
	"proxyfleet/internal/coordinator/intents"
)

// Watch asks to be told of the proxies that match, and of each change of theirs.
type Watch struct {
	Match
	Seconds int `json:"seconds,omitempty"` // how long; at most 600, default 60
}

// Watched is one reply to a watch.
type Watched struct {
	Proxy  string          `json:"proxy"`
	Record json.RawMessage `json:"record"` // null: it has gone, or does not match any more
}

const (
	watchSeconds = 60
	maxSeconds   = 600
	// maxWatches at once: whoever needs more watches the bucket.
	maxWatches = 100
)

// watch sends what matches and each change, in batches of what came together, of which the
// newest counts. Nobody tells a service that the one who asked has gone, so it ends by itself,
// with an empty reply (see [watchEnd]).
func (a *api) watch(ctx context.Context, r micro.Request) (any, *intents.Invalid) {
	var w Watch
	if bad := intents.Decode(r.Data(), &w); bad != nil {
		return nil, bad
	}
	if w.Seconds < 0 || w.Seconds > maxSeconds {
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "seconds", Message: fmt.Sprintf("is not between 1 and %d", maxSeconds)}
	}
	select {
	case a.watches <- struct{}{}:
		defer func() { <-a.watches }()
	default:
		return nil, &intents.Invalid{Code: codeTooMany, Message: fmt.Sprintf("%d watches are open; watch the bucket %s instead", maxWatches, a.fleet.Names().Proxies())}
	}
	ctx, cancel := context.WithTimeout(ctx, watchTime(w.Seconds))
	defer cancel()
	defer a.watchers.ended(r.Reply())
	changes, end := a.inv.buckets[core.Proxies].watch()
	defer end()
	sent := map[string]bool{}
	for {
		match := a.matcher(w.Match)
		for _, key := range changes.take() {
			record, ok := a.inv.get(core.Proxies, key)
			if ok = ok && match(record); !ok && !sent[key] {
				continue
			}
			if !ok {
				record = []byte("null")
			}
			sent[key] = ok
			if err := a.nc.Publish(r.Reply(), bus.Encode(Watched{Proxy: key, Record: record})); err != nil {
				return nil, nil // the connection is closed
			}
		}
		select {
		case <-ctx.Done():
			_ = a.nc.PublishMsg(watchEnd(r.Reply(), a.ctx.Err() != nil))
			return nil, nil
		case <-changes.news:
		}
	}
}

// watchTime is how long a watch lasts that asks for so many seconds.
func watchTime(seconds int) time.Duration {
	if seconds == 0 {
		seconds = watchSeconds
	}
	return time.Duration(min(seconds, maxSeconds)) * time.Second
}
