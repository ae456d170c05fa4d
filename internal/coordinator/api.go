package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
	"proxyfleet/internal/coordinator/intents"
)

// api is the micro service of the leader. Its verbs:
//
//	apply   the intent's document → Applied, or an error of the field that is wrong
//	delete  a proxy's name → Applied
//	get     a proxy's name → its record
//	list    nothing, or Page → Listing of records
//	hosts   nothing, or Page → Listing of host records
//
// Each verb is a subject below fleet.api. An error stands in the service's error headers
// and, as an intents.Invalid, in the body.
type api struct {
	fleet   *bus.Fleet
	leader  *bus.Leader
	nc      *nats.Conn
	inv     *inventory
	send    func(input)
	log     *slog.Logger
	metrics *Metrics
	version string
	ctx     context.Context // of the term, for handlers
}

// Applied answers apply and delete: the intent was stored and accepted.
type Applied struct {
	Proxy string          `json:"proxy"`
	Seq   uint64          `json:"seq"` // of the intent
	State json.RawMessage `json:"record,omitempty"`
}

// Page asks for a part of a list.
type Page struct {
	After string `json:"after,omitempty"` // last name of the page before
	Limit int    `json:"limit,omitempty"` // at most 500, the default
}

// Listing is a part of a list in the order of names.
type Listing struct {
	Items []json.RawMessage `json:"items"`
	Next  string            `json:"next,omitempty"` // what to give as After for more; empty at the end
}

const (
	pageLimit    = 500
	pageBytes    = 512 << 10 // well below the server's default limit of 1 MiB for a message
	applyTimeout = 5 * time.Second
)

// Codes of errors beside those of intents.Invalid.
const (
	codeNotFound   = "NotFound"
	codeSuperseded = "Superseded"
	codeTimeout    = "Timeout"
	codeNotStored  = "NotStored"
)

func newAPI(c *Coordinator, leader *bus.Leader, inv *inventory, send func(input), log *slog.Logger) *api {
	return &api{fleet: c.fleet, leader: leader, nc: c.nc, inv: inv, send: send, log: log, metrics: c.metrics, version: c.cfg.Version}
}

func (a *api) run(ctx context.Context) error {
	select { // what is not read yet cannot be answered
	case <-ctx.Done():
		return nil
	case <-a.inv.ready:
	}
	a.ctx = ctx
	svc, err := micro.AddService(a.nc, micro.Config{
		Name: strings.ReplaceAll(a.fleet.Names().API(), ".", "-"), Version: a.version,
		Description: "Applies intents and shows the inventory. Only the leader answers.",
	})
	if err != nil {
		return err
	}
	defer svc.Stop() //nolint:errcheck // the connection may be closed
	group := svc.AddGroup(a.fleet.Names().API())
	for name, f := range map[string]func(context.Context, micro.Request) (any, *intents.Invalid){
		"apply":  a.apply,
		"delete": a.remove,
		"get":    a.get,
		"list":   func(_ context.Context, r micro.Request) (any, *intents.Invalid) { return a.page(core.Proxies, r) },
		"hosts":  func(_ context.Context, r micro.Request) (any, *intents.Invalid) { return a.page(core.Hosts, r) },
	} {
		if err := group.AddEndpoint(name, a.handler(name, f)); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// handler answers in a goroutine of its own: an apply that waits holds up nobody.
func (a *api) handler(name string, f func(context.Context, micro.Request) (any, *intents.Invalid)) micro.Handler {
	return micro.HandlerFunc(func(r micro.Request) {
		go func() {
			ctx := bus.ExtractTrace(a.ctx, nats.Header(r.Headers()))
			doc, bad := f(ctx, r)
			var err error
			outcome := "ok"
			if bad != nil {
				outcome = bad.Code
				err = r.Error(bad.Code, bad.Error(), bus.Encode(bad))
			} else {
				err = r.RespondJSON(doc)
			}
			a.metrics.requests.WithLabelValues(name, outcome).Inc()
			if err != nil {
				a.log.Debug("a request could not be answered", "endpoint", name, "err", err)
			}
		}()
	})
}

func (a *api) apply(ctx context.Context, r micro.Request) (any, *intents.Invalid) {
	name, bad := intents.Name(r.Data())
	if bad != nil {
		return nil, bad
	}
	// What would be refused is not stored: it would only hide the intent in force.
	if _, bad := intents.Parse(name, r.Data()); bad != nil {
		return nil, bad
	}
	return a.publish(ctx, name, r.Data())
}

func (a *api) remove(ctx context.Context, r micro.Request) (any, *intents.Invalid) {
	name := strings.TrimSpace(string(r.Data()))
	if bad := intents.Label("name", name, bus.MaxProxyName); bad != nil {
		return nil, bad
	}
	if _, ok := a.inv.get(core.Proxies, name); !ok {
		return nil, notFound(name)
	}
	return a.publish(ctx, name, bus.Encode(bus.Intent{Type: bus.TypeIntent, Name: name, Desired: bus.DesiredAbsent}))
}

func notFound(name string) *intents.Invalid {
	return &intents.Invalid{Code: codeNotFound, Field: "name", Message: fmt.Sprintf("there is no proxy %q", name)}
}

// publish stores an intent and waits for the verdict.
func (a *api) publish(ctx context.Context, name string, doc []byte) (any, *intents.Invalid) {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	seq, err := a.fleet.PublishIntent(ctx, a.fleet.Names().IntentProxy(name), doc)
	if errors.Is(err, bus.ErrStreamFull) {
		return nil, &intents.Invalid{Code: "StreamFull", Message: err.Error()}
	}
	if err != nil {
		return nil, &intents.Invalid{Code: codeNotStored, Message: "it is not known whether the intent was stored; apply it again: " + err.Error()}
	}
	wait := &await{name: name, seq: seq, reply: make(chan verdict, 1)}
	a.send(wait)
	select {
	case <-ctx.Done():
		return nil, &intents.Invalid{Code: codeTimeout, Message: fmt.Sprintf("the intent was stored with sequence %d and is not decided yet; look at its record", seq)}
	case v := <-wait.reply:
		switch {
		case v.seq > seq:
			return nil, &intents.Invalid{Code: codeSuperseded, Message: fmt.Sprintf("the intent was stored with sequence %d, and another with sequence %d before it was decided", seq, v.seq)}
		case v.bad != nil:
			return nil, v.bad
		}
		record, _ := a.inv.get(core.Proxies, name)
		return Applied{Proxy: name, Seq: seq, State: record}, nil
	}
}

func (a *api) get(_ context.Context, r micro.Request) (any, *intents.Invalid) {
	name := strings.TrimSpace(string(r.Data()))
	record, ok := a.inv.get(core.Proxies, name)
	if !ok {
		return nil, notFound(name)
	}
	return json.RawMessage(record), nil
}

func (a *api) page(from core.Bucket, r micro.Request) (any, *intents.Invalid) {
	var p Page
	if len(strings.TrimSpace(string(r.Data()))) > 0 {
		if err := json.Unmarshal(r.Data(), &p); err != nil {
			return nil, &intents.Invalid{Code: intents.CodeMalformed, Message: `the request is neither empty nor {"after": "…", "limit": n}`}
		}
	}
	if p.Limit <= 0 || p.Limit > pageLimit {
		p.Limit = pageLimit
	}
	keys := a.inv.sorted(from)
	first, found := slices.BinarySearch(keys, p.After)
	if found {
		first++
	}
	out, size, last := Listing{Items: []json.RawMessage{}}, 0, ""
	for _, key := range keys[first:] {
		v, ok := a.inv.get(from, key)
		if !ok {
			continue
		}
		if len(out.Items) == p.Limit || len(out.Items) > 0 && size+len(v) > pageBytes {
			out.Next = last
			break
		}
		out.Items, size, last = append(out.Items, v), size+len(v), key
	}
	return out, nil
}
