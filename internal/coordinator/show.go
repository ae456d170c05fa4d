package coordinator

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
	"proxyfleet/internal/coordinator/intents"
)

// Page asks for a part of a list.
type Page struct {
	After string `json:"after,omitempty"` // last name of the page before
	Limit int    `json:"limit,omitempty"` // at most 500, the default
}

// Match says which proxies are meant. A field that is left out matches all.
type Match struct {
	Pool     string            `json:"pool,omitempty"`
	Host     string            `json:"host,omitempty"`
	Zone     string            `json:"zone,omitempty"`   // of the host
	Labels   map[string]string `json:"labels,omitempty"` // of the host, all of them
	Phase    bus.Phase         `json:"phase,omitempty"`
	Accepted *bool             `json:"accepted,omitempty"` // whether the newest intent is in force
}

// List asks for a part of the proxies that match.
type List struct {
	Match
	Page
}

// Listing is a part of a list in the order of names.
type Listing struct {
	Items []json.RawMessage `json:"items"`
	Next  string            `json:"next,omitempty"` // what to give as After for more; empty at the end
}

const (
	pageLimit = 500
	pageBytes = 512 << 10 // well below the server's default limit of 1 MiB for a message
)

func (a *api) get(_ context.Context, r micro.Request) (any, *intents.Invalid) {
	of, bad := named(r.Data())
	if bad != nil {
		return nil, bad
	}
	record, ok := a.inv.get(recordOf(of))
	if !ok {
		return nil, notFound(of)
	}
	return json.RawMessage(record), nil
}

// Described answers describe.
type Described struct {
	core.Description
	Events []bus.Event `json:"events"` // the newest of them, oldest first
	// EventsError says why there are none: the stream is missing, say. The rest is known without it.
	EventsError string `json:"eventsError,omitempty"`
}

// describedEvents is how many events are shown; all of them stand in the stream.
const describedEvents = 100

func (a *api) describe(ctx context.Context, r micro.Request) (any, *intents.Invalid) {
	of, bad := named(r.Data())
	if bad != nil {
		return nil, bad
	}
	doc, bad := a.ask(ctx, of)
	if bad != nil {
		return nil, bad
	}
	out := Described{Description: doc.(core.Description)}
	var err error
	if out.Events, err = a.fleet.EventsOf(ctx, out.Subjects["events"], describedEvents); err != nil {
		out.Events, out.EventsError = []bus.Event{}, err.Error()
	}
	return out, nil
}

// page lists a bucket.
func (a *api) page(from core.Bucket) serve {
	return func(_ context.Context, r micro.Request) (any, *intents.Invalid) {
		var p Page
		if bad := intents.Decode(r.Data(), &p); bad != nil {
			return nil, bad
		}
		return a.listing(from, p, func([]byte) bool { return true }), nil
	}
}

func (a *api) list(_ context.Context, r micro.Request) (any, *intents.Invalid) {
	var l List
	if bad := intents.Decode(r.Data(), &l); bad != nil {
		return nil, bad
	}
	return a.listing(core.Proxies, l.Page, a.matcher(l.Match)), nil
}

func (a *api) listing(from core.Bucket, p Page, match func([]byte) bool) Listing {
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
		if !ok || !match(v) {
			continue
		}
		if len(out.Items) == p.Limit || len(out.Items) > 0 && size+len(v) > pageBytes {
			out.Next = last
			break
		}
		out.Items, size, last = append(out.Items, v), size+len(v), key
	}
	return out
}

// matcher tells whether a record matches. It looks hosts up once.
func (a *api) matcher(m Match) func(record []byte) bool {
	if m.empty() {
		return func([]byte) bool { return true }
	}
	hosts := map[string]bus.HostRecord{}
	hostOf := func(name string) bus.HostRecord {
		h, ok := hosts[name]
		if !ok {
			data, _ := a.inv.get(core.Hosts, name)
			h, _ = bus.Decode[bus.HostRecord](data)
			hosts[name] = h
		}
		return h
	}
	return func(record []byte) bool {
		r, err := bus.Decode[bus.Record](record)
		return err == nil && m.matches(r, hostOf)
	}
}

func (m Match) empty() bool {
	return m.Pool == "" && m.Host == "" && m.Zone == "" && len(m.Labels) == 0 && m.Phase == "" && m.Accepted == nil
}

func (m Match) matches(r bus.Record, hostOf func(string) bus.HostRecord) bool {
	switch {
	case m.Pool != "" && r.Pool != m.Pool, m.Host != "" && r.Host != m.Host, m.Phase != "" && r.Phase != m.Phase,
		m.Accepted != nil && r.Accepted != *m.Accepted:
		return false
	case m.Zone == "" && len(m.Labels) == 0:
		return true
	case r.Host == "":
		return false
	}
	h := hostOf(r.Host)
	for k, v := range m.Labels {
		if h.Labels[k] != v {
			return false
		}
	}
	return m.Zone == "" || h.Zone == m.Zone
}
