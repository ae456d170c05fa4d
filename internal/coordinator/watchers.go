package coordinator

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/coordinator/intents"
)

// watchers are the watches that somebody may still wait for, whoever leads: every coordinator
// hears the requests. A leader that is killed cannot say that its watches are over, so the
// next one does.
type watchers struct {
	sub *nats.Subscription
	nc  *nats.Conn

	mu    sync.Mutex           // guards the field that follows
	until map[string]time.Time // by where the replies go
}

// maxWatchers bounds what is remembered; a flood of requests is refused by the leader.
const maxWatchers = 10 * maxWatches

// hearWatches listens until end is called.
func (c *Coordinator) hearWatches() (w *watchers, err error) {
	w = &watchers{nc: c.nc, until: map[string]time.Time{}}
	w.sub, err = c.nc.Subscribe(c.fleet.Names().API()+".watch", w.hear)
	if err != nil {
		return nil, fmt.Errorf("listen for watches: %w", err)
	}
	return w, nil
}

func (w *watchers) hear(m *nats.Msg) {
	var asked struct{ Seconds int }
	if len(m.Data) > 0 && json.Unmarshal(m.Data, &asked) != nil || m.Reply == "" {
		return // it is refused
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for reply, until := range w.until {
		if len(w.until) >= maxWatchers && now.After(until) {
			delete(w.until, reply)
		}
	}
	if len(w.until) < maxWatchers {
		w.until[m.Reply] = now.Add(watchTime(asked.Seconds))
	}
}

// ended forgets a watch of which its end was said.
func (w *watchers) ended(reply string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.until, reply)
}

// endAll tells those who wait that the leader of their watch leads no more. Call it before
// requests are served: who asks afterwards is answered.
func (w *watchers) endAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for reply, until := range w.until {
		if now.Before(until) {
			_ = w.nc.PublishMsg(watchEnd(reply, true)) // or the connection is closed
		}
	}
	clear(w.until)
}

// watchEnd is the last reply to a watch, without a body. Where the lead was lost before the
// watch was over, its headers say so as those of any answer do.
func watchEnd(reply string, lost bool) *nats.Msg {
	end := &nats.Msg{Subject: reply}
	if lost {
		bad := intents.Invalid{Code: codeNotLeading, Message: "another coordinator leads since; watch again, and take what it sends first as all that there is"}
		end.Header = nats.Header{micro.ErrorCodeHeader: {bad.Code}, micro.ErrorHeader: {bad.Error()}}
	}
	return end
}

func (w *watchers) end() { _ = w.sub.Unsubscribe() } // or the connection is closed
