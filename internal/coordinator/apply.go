package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
	"proxyfleet/internal/coordinator/intents"
)

// Applied answers apply and delete: the intent was stored and accepted.
type Applied struct {
	Proxy string          `json:"proxy,omitempty"`
	Pool  string          `json:"pool,omitempty"`
	Seq   uint64          `json:"seq"` // of the intent
	State json.RawMessage `json:"record,omitempty"`
}

// what an intent is about: a proxy or a pool.
type subject struct{ proxy, pool string }

func (s subject) name() string { return s.proxy + s.pool }

// isPool tells the document of a pool by its type or by what only pools have.
func isPool(doc []byte) bool {
	var head struct {
		Type                     string
		Template, Size, Min, Max json.RawMessage
	}
	return json.Unmarshal(doc, &head) == nil && (head.Type == bus.TypePool ||
		head.Type == "" && (head.Template != nil || head.Size != nil || head.Min != nil || head.Max != nil))
}

func (a *api) apply(ctx context.Context, r micro.Request) (any, *intents.Invalid) {
	// What would be refused is not stored: it would only hide the intent in force.
	if isPool(r.Data()) {
		name, bad := intents.PoolName(r.Data())
		if bad == nil {
			_, bad = intents.ParsePool(name, r.Data())
		}
		if bad != nil {
			return nil, bad
		}
		return a.publish(ctx, subject{pool: name}, r.Data())
	}
	name, bad := intents.Name(r.Data())
	if bad == nil {
		_, bad = intents.Parse(name, r.Data())
	}
	if bad != nil {
		return nil, bad
	}
	return a.publish(ctx, subject{proxy: name}, r.Data())
}

// remove publishes that a proxy or a pool is to be absent.
func (a *api) remove(ctx context.Context, r micro.Request) (any, *intents.Invalid) {
	of, bad := named(r.Data())
	if bad != nil {
		return nil, bad
	}
	bucket, key := recordOf(of)
	record, ok := a.inv.get(bucket, key)
	if !ok {
		return nil, notFound(of)
	}
	switch {
	case of.Host != "":
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "host", Message: "a host is not deleted: ask for remove-host"}
	case of.Pool != "":
		return a.publish(ctx, subject{pool: key}, bus.Encode(bus.PoolIntent{Type: bus.TypePool, Name: key, Desired: bus.DesiredAbsent}))
	}
	if rec, err := bus.Decode[bus.Record](record); err == nil && rec.Pool != "" {
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "proxy", Message: fmt.Sprintf("it is a member of pool %s: scale the pool, or rotate the member", rec.Pool)}
	}
	return a.publish(ctx, subject{proxy: key}, bus.Encode(bus.Intent{Type: bus.TypeIntent, Name: key, Desired: bus.DesiredAbsent}))
}

// named reads whom a request is about. A bare name is a proxy's.
func named(data []byte) (core.Describe, *intents.Invalid) {
	var of core.Describe
	if text := strings.TrimSpace(string(data)); !strings.HasPrefix(text, "{") {
		of.Proxy = text
	} else if bad := intents.Decode(data, &of); bad != nil {
		return of, bad
	}
	if (of.Proxy != "") == (of.Pool != "") && of.Host == "" || of.Host != "" && of.Proxy+of.Pool != "" {
		return of, &intents.Invalid{Code: intents.CodeInvalid, Field: "proxy", Message: "give one of proxy, pool and host"}
	}
	return of, nil
}

// recordOf is where a record stands in the inventory.
func recordOf(of core.Describe) (core.Bucket, string) {
	switch {
	case of.Pool != "":
		return core.Pools, of.Pool
	case of.Host != "":
		return core.Hosts, of.Host
	}
	return core.Proxies, of.Proxy
}

func notFound(of core.Describe) *intents.Invalid {
	switch {
	case of.Pool != "":
		return &intents.Invalid{Code: codeNotFound, Field: "pool", Message: fmt.Sprintf("there is no pool %q", of.Pool)}
	case of.Host != "":
		return &intents.Invalid{Code: codeNotFound, Field: "host", Message: fmt.Sprintf("there is no host %q", of.Host)}
	}
	return &intents.Invalid{Code: codeNotFound, Field: "proxy", Message: fmt.Sprintf("there is no proxy %q", of.Proxy)}
}

// publish stores an intent and waits for the verdict.
func (a *api) publish(ctx context.Context, of subject, doc []byte) (any, *intents.Invalid) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	// A leader that was frozen may hold what somebody asked for long ago.
	if bad := a.leads(ctx); bad != nil {
		return nil, bad
	}
	names := a.fleet.Names()
	to, bucket := names.IntentProxy(of.name()), core.Proxies
	judge := func(m *core.Model) (uint64, *intents.Invalid) { return m.Verdict(of.proxy) }
	if of.pool != "" {
		to, bucket = names.IntentPool(of.pool), core.Pools
		judge = func(m *core.Model) (uint64, *intents.Invalid) { return m.PoolVerdict(of.pool) }
	}
	seq, err := a.fleet.PublishIntent(ctx, to, doc)
	if errors.Is(err, bus.ErrStreamFull) {
		return nil, &intents.Invalid{Code: "StreamFull", Message: err.Error()}
	}
	if err != nil {
		return nil, &intents.Invalid{Code: codeNotStored, Message: "it is not known whether the intent was stored; apply it again: " + err.Error()}
	}
	wait := &await{judge: judge, seq: seq, reply: make(chan verdict, 1)}
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
		record, _ := a.inv.get(bucket, of.name())
		return Applied{Proxy: of.proxy, Pool: of.pool, Seq: seq, State: record}, nil
	}
}
