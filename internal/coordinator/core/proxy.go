package core

import (
	"fmt"
	"strings"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// proxy is what is known under one name.
type proxy struct {
	name   string
	marked bool // stands in Model.dirty

	intent    newest[bus.Intent]
	held      string // why the newest intent is not taken on for now, or empty
	ledger    bus.Ledger
	stored    bool // the ledger entry is in the stream, or on its way there
	ledgerSeq uint64
	echoes    echoes

	verify bool      // what is stored may differ from what was decided
	wait   string    // why something accepted is not done yet, for people
	trace  string    // traceparent of the newest intent
	phase  bus.Phase // as shown last

	// Of a pool's member.
	of        *pool     // whose roster it stands in
	order     *order    // what its pool decided, not yet taken into the ledger
	told      order     // what was taken into the ledger last
	owned     string    // why the newest intent has no say: the name is a member's
	toldOwned uint64    // sequence of the intent that was told so
	fresh     bool      // bound by this coordinator, and not up yet
	condemned bool      // it is replaced for being unhealthy
	weakSince time.Time // since when it fails its health check; zero: it does not
	specOf    *bus.Intent
	spec      string // digest of specOf's spec
}

// refusal says why the newest intent is not in force; nil when it is.
func (p *proxy) refusal() *intents.Invalid {
	switch {
	case p.intent.bad != nil:
	case p.owned != "":
		return &intents.Invalid{Code: codeOwned, Field: "name", Message: p.owned}
	case p.held != "":
		return heldBack(p.held)
	}
	return p.intent.bad
}

// codeOwned says that a name is already somebody else's.
const codeOwned = "Owned"

func heldBack(why string) *intents.Invalid {
	return &intents.Invalid{Code: "StreamFull", Message: why + "; taken on when there is room again"}
}

func (p *proxy) retired(host, uid string) *bus.Retired {
	for i := range p.ledger.Retired {
		if r := &p.ledger.Retired[i]; r.UID == uid && r.Host == host {
			return r
		}
	}
	return nil
}

func (m *Model) proxy(name string) *proxy {
	p := m.proxies[name]
	if p == nil {
		p = &proxy{name: name, ledger: emptyLedger(name)}
		m.proxies[name] = p
	}
	return p
}

func emptyLedger(name string) bus.Ledger {
	return bus.Ledger{Type: bus.TypeLedger, Kind: "proxy", Name: name}
}

func (m *Model) onIntent(name string, msg bus.Msg) {
	if bad := intents.Label("name", name, bus.MaxProxyName); bad != nil {
		// Such a name cannot be a key or a host name, so it gets an event and no record.
		m.sayFleet("IntentRejected", fmt.Sprintf("the intent for %.60q is refused: the name %s", name, bad.Message), msg.Seq)
		return
	}
	p := m.proxy(name)
	if !p.intent.read(name, msg, intents.Parse) {
		return
	}
	p.trace = msg.Header.Get("traceparent")
	if p.intent.bad != nil {
		m.sayProxy(p, "IntentRejected", p.intent.rejected(p.ledger.IntentSeq))
	}
	m.mark(p)
}

// noteStray tells of what was stored among the intents where nobody's name is: whoever
// published it was told that it is stored.
func (m *Model) noteStray(msg bus.Msg) {
	names := m.cfg.Names
	if !strings.HasPrefix(msg.Subject, strings.TrimSuffix(names.AllIntents(), ">")) {
		return
	}
	m.sayFleet("IntentRejected", fmt.Sprintf("what is on subject %.80q is nobody's: an intent belongs on %s or %s",
		msg.Subject, names.IntentProxy("NAME"), names.IntentPool("NAME")), msg.Seq)
}

func (m *Model) onLedger(name string, msg bus.Msg) {
	if !m.live {
		doc, err := bus.Decode[bus.Ledger](msg.Data)
		if err != nil || doc.Name != name {
			m.do(Alarm{"LedgerUnreadable", fmt.Sprintf("the ledger entry of proxy %s at sequence %d cannot be read; it is left alone, and so is what it names", name, msg.Seq)})
			return
		}
		p := m.proxy(name)
		p.ledger, p.ledgerSeq, p.stored = doc, msg.Seq, true
		p.echoes.last = string(msg.Data)
		return
	}
	p := m.proxies[name]
	if p == nil || !p.stored {
		m.sayFleet("ForeignWrite", "a ledger entry of proxy "+name+" was written by somebody else; it is removed", msg.Seq)
		m.do(ForgetLedger{bus.Msg{Subject: msg.Subject, Seq: msg.Seq}})
		return
	}
	p.ledgerSeq = msg.Seq
	if p.echoes.back(msg.Data) {
		if m.empty(&p.ledger) {
			m.mark(p) // it may be forgotten now
		}
		return
	}
	m.sayProxy(p, "ForeignWrite", bus.Event{Cause: "leader", Seq: msg.Seq, Message: "somebody else wrote the ledger entry; it is written again as it was decided"})
	m.commitLedger(p, nil)
}

// forgettable reports whether the ledger entry remembers something for no longer.
func (m *Model) forgettable(p *proxy) bool {
	for _, r := range p.ledger.Retired {
		if m.expired(r) {
			return true
		}
	}
	return false
}

func (m *Model) expired(r bus.Retired) bool {
	return r.Gone && m.now.Sub(r.Since) >= m.cfg.Remember
}

// echoes are writes on one subject that have not come back yet. The stream may conflate
// them, so a later one that comes back settles those before it.
type echoes struct {
	out  []string
	last string // came back last, or was there when it was loaded
}

func (e *echoes) sent(data []byte) { e.out = append(e.out, string(data)) }

// back reports whether data is a write of ours. One that was repeated comes back twice.
func (e *echoes) back(data []byte) bool {
	for i, out := range e.out {
		if out == string(data) {
			e.out, e.last = e.out[i+1:], out
			return true
		}
	}
	return e.last == string(data)
}

// settled reports whether nothing is on its way.
func (e *echoes) settled() bool { return len(e.out) == 0 }
