package core

import (
	"fmt"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
	"proxyfleet/internal/secret"
)

// Describe asks for all that is decided about one thing, and changes nothing. Exactly one
// of its fields is given. It is answered by [Description].
type Describe struct {
	Proxy string `json:"proxy,omitempty"`
	Pool  string `json:"pool,omitempty"`
	Host  string `json:"host,omitempty"`
}

// Description is a record, and what the ledger says beside it. It has no secrets: what
// stands in their place says that there is one.
type Description struct {
	Record   any               `json:"record"`             // as in the inventory
	Accepted *bus.Intent       `json:"accepted,omitempty"` // the intent in force, of a proxy
	Pool     *bus.PoolIntent   `json:"pool,omitempty"`     // and of a pool
	Bound    *bus.Spec         `json:"bound,omitempty"`    // as its host has it, defaults filled in
	Applied  uint64            `json:"applied,omitempty"`  // sequence of the intent that the binding satisfies
	Retired  []bus.Retired     `json:"retired,omitempty"`  // earlier bindings, until they are forgotten
	Refused  []bus.Refused     `json:"refused,omitempty"`  // hosts that cannot run the intent
	Subjects map[string]string `json:"subjects"`           // where more of it stands
}

func (c Describe) decide(m *Model) (any, *intents.Invalid) {
	given := 0
	for _, name := range []string{c.Proxy, c.Pool, c.Host} {
		if name != "" {
			given++
		}
	}
	names := m.cfg.Names
	switch {
	case given != 1:
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "proxy", Message: "give one of proxy, pool and host"}
	case c.Pool != "":
		po := m.pools[c.Pool]
		if po == nil || !po.stored && po.intent.seq == 0 {
			return nil, notThere("pool", c.Pool)
		}
		out := Description{Record: m.poolRecord(po), Subjects: map[string]string{"intent": names.IntentPool(c.Pool), "events": names.EventPool(c.Pool)}}
		if doc := po.ledger.Accepted; doc != nil {
			open := *doc
			open.Template = withoutSecrets(open.Template)
			out.Pool = &open
		}
		return out, nil
	case c.Host != "":
		h, bad := m.known(c.Host)
		if bad != nil {
			return nil, bad
		}
		return Description{Record: m.hostRecord(h), Subjects: map[string]string{"state": names.StateHost(c.Host), "events": names.EventHost(c.Host)}}, nil
	}
	return m.describe(c.Proxy)
}

func (m *Model) describe(name string) (any, *intents.Invalid) {
	p := m.proxies[name]
	if p == nil {
		return nil, notThere("proxy", name)
	}
	r, _ := m.record(p)
	names, l := m.cfg.Names, &p.ledger
	out := Description{Record: r, Applied: l.Applied, Retired: l.Retired, Refused: l.Refused,
		Subjects: map[string]string{"intent": names.IntentProxy(name), "events": names.EventProxy(name)}}
	if l.Accepted != nil {
		open := *l.Accepted
		open.Spec = withoutSecrets(open.Spec)
		out.Accepted = &open
	}
	if l.Bound != nil {
		open := withoutSecrets(*l.Bound)
		out.Bound = &open
	}
	if l.UID != "" {
		out.Subjects["assignment"] = names.Assign(l.Host, name, l.UID)
		out.Subjects["state"] = names.StateProxy(l.Host, name, l.UID)
	}
	return out, nil
}

// withoutSecrets is a spec for people: passwords and user-data, which may hold others, are
// only said to be there.
func withoutSecrets(s bus.Spec) bus.Spec {
	if s.Auth != nil {
		s.Auth = &bus.Auth{Username: s.Auth.Username, Password: secret.String(secret.Redacted)}
	}
	if s.CloudInit != "" {
		s.CloudInit = fmt.Sprintf("%s (%d bytes)", secret.Redacted, len(s.CloudInit))
	}
	if s.CloudInitBase64 != "" {
		s.CloudInitBase64 = fmt.Sprintf("%s (%d bytes of base64)", secret.Redacted, len(s.CloudInitBase64))
	}
	return s
}
