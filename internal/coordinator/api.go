package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
	"proxyfleet/internal/coordinator/intents"
)

// api is the micro service of the leader, a verb for each subject below fleet.api;
// docs/api.md shows each. An error stands in the service's error headers and, as an
// intents.Invalid, in the body.
//
// Each term has a queue group of its own. With one for all, a leader that was frozen would
// get every second request for as long as its connection is not closed, and answer none;
// so both get it, and the one that leads answers. One that goes on after a freeze refuses
// what would change something, because the fence has moved.
type api struct {
	fleet   *bus.Fleet
	leader  *bus.Leader
	nc      *nats.Conn
	inv     *inventory
	send    func(input)
	log     *slog.Logger
	metrics *Metrics
	version string
	holder  string
	watches chan struct{}   // taken by each watch
	ctx     context.Context // of the term, for handlers

	watchers *watchers
}

// Codes of errors beside those of intents.Invalid and of the core.
const (
	codeNotFound   = "NotFound"
	codeSuperseded = "Superseded" // another intent of the name came before it was decided
	codeTimeout    = "Timeout"    // it is not known what became of it
	codeNotStored  = "NotStored"
	codeNotLeading = "NotLeading" // another coordinator leads since
	codeTooMany    = "TooMany"
)

// requestTimeout bounds how long an answer is waited for, below the 5 s after which the nats
// CLI gives up.
const requestTimeout = 4 * time.Second

func newAPI(c *Coordinator, leader *bus.Leader, inv *inventory, send func(input), log *slog.Logger) *api {
	return &api{fleet: c.fleet, leader: leader, nc: c.nc, inv: inv, send: send, log: log, metrics: c.metrics, version: c.cfg.Version, holder: c.cfg.Holder,
		watches: make(chan struct{}, maxWatches), watchers: c.watchers}
}

func (a *api) run(ctx context.Context) error {
	select { // what is not read yet cannot be answered
	case <-ctx.Done():
		return nil
	case <-a.inv.ready:
	}
	a.ctx = ctx
	a.watchers.endAll()
	svc, err := micro.AddService(a.nc, micro.Config{
		Name: strings.ReplaceAll(a.fleet.Names().API(), ".", "-"), Version: a.version,
		QueueGroup:  fmt.Sprintf("term-%d", a.leader.Term()),
		Description: "Asks for proxies and pools, shows what became of them, and gives orders to hosts. The leader answers.",
		Metadata: map[string]string{"installation": a.fleet.Installation().ID, "term": fmt.Sprint(a.leader.Term()),
			"holder": a.holder, "pid": strconv.Itoa(os.Getpid())},
	})
	if err != nil {
		return err
	}
	defer svc.Stop() //nolint:errcheck // the connection may be closed
	group := svc.AddGroup(a.fleet.Names().API())
	for _, v := range a.verbs() {
		meta := map[string]string{"description": v.about, "request": v.request, "response": v.response}
		if err := group.AddEndpoint(v.name, a.handler(v), micro.WithEndpointMetadata(meta)); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// handler answers in a goroutine of its own: one that waits holds up nobody.
func (a *api) handler(v verb) micro.Handler {
	return micro.HandlerFunc(func(r micro.Request) {
		go func() {
			ctx := bus.ExtractTrace(a.ctx, nats.Header(r.Headers()))
			doc, bad := v.serve(ctx, r)
			outcome := "ok"
			if bad != nil {
				outcome = bad.Code
			}
			a.metrics.requests.WithLabelValues(v.name, outcome).Inc()
			if err := a.respond(r, doc, bad); err != nil {
				a.log.Debug("a request could not be answered", "endpoint", v.name, "err", err)
			}
		}()
	})
}

// respond answers with an error, or with a document unless it is nil. It publishes the answer
// itself: the request's own methods leave their outcome in the request, which the service
// reads as soon as the handler has returned.
func (a *api) respond(r micro.Request, doc any, bad *intents.Invalid) error {
	var data []byte
	if bad == nil && doc != nil {
		var err error
		if data, err = json.Marshal(doc); err != nil {
			return err
		}
		if most := a.nc.MaxPayload(); int64(len(data)) > most {
			bad = &intents.Invalid{Code: intents.CodeTooLarge, Message: fmt.Sprintf("the answer has %d bytes and a message at most %d; ask for less", len(data), most)}
		}
	}
	answer := &nats.Msg{Subject: r.Reply(), Data: data}
	switch {
	case r.Reply() == "", bad == nil && doc == nil:
		return nil
	case bad != nil:
		answer.Header = nats.Header{micro.ErrorCodeHeader: {bad.Code}, micro.ErrorHeader: {bad.Error()}}
		answer.Data = bus.Encode(bad)
	}
	return a.nc.PublishMsg(answer)
}

// ask has the model decide about a request, and returns its answer once it is stored.
func (a *api) ask(ctx context.Context, what core.Ask) (any, *intents.Invalid) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	asked := &request{ask: what, reply: make(chan core.Reply, 1)}
	a.send(asked)
	select {
	case <-ctx.Done():
		return nil, &intents.Invalid{Code: codeTimeout, Message: "it is not known whether it was carried out; look before you ask again"}
	case r := <-asked.reply:
		return r.Doc, r.Bad
	}
}

// leads refuses where another coordinator leads since.
func (a *api) leads(ctx context.Context) *intents.Invalid {
	if err := a.leader.Leads(ctx); err != nil {
		return &intents.Invalid{Code: codeNotLeading, Message: "nothing was done, ask again: " + err.Error()}
	}
	return nil
}
