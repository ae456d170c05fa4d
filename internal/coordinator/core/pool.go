package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// pool is what is known of one pool. Its members are proxies whose ledger entries name it.
type pool struct {
	name   string
	marked bool // stands in Model.dirtyPools

	intent    newest[bus.PoolIntent]
	held      string // why the newest intent is not taken on for now, or empty
	ledger    bus.PoolLedger
	stored    bool // the ledger entry is in the stream, or on its way there
	ledgerSeq uint64
	echoes    echoes
	trace     string // traceparent of the newest intent

	template  string // digest of the accepted template
	roster    roster
	recovered bool      // a replacement came up after one had failed
	wakeAt    time.Time // when a member or a retry may be due; zero: never
	wait      string    // why it is not as it should be, for people
	failure   string    // what the member said that failed last
	unplaced  string    // why the member that was judged last has no host

	conditions conditions
}

// absent reports whether the accepted document says that the pool must not exist.
func (po *pool) absent() bool {
	return po.ledger.Accepted == nil || po.ledger.Accepted.Desired == bus.DesiredAbsent
}

// refusal says why the newest intent is not in force; nil when it is.
func (po *pool) refusal() *intents.Invalid {
	if po.intent.bad == nil && po.held != "" {
		return heldBack(po.held)
	}
	return po.intent.bad
}

func (m *Model) pool(name string) *pool {
	po := m.pools[name]
	if po == nil {
		po = &pool{name: name, ledger: emptyPoolLedger(name), roster: newRoster()}
		m.pools[name] = po
	}
	return po
}

func emptyPoolLedger(name string) bus.PoolLedger {
	return bus.PoolLedger{Type: bus.TypePoolLedger, Kind: "pool", Name: name}
}

// markPools has every pool decide anew.
func (m *Model) markPools() {
	for _, po := range sorted(m.pools) {
		m.markPool(po)
	}
}

func (m *Model) markPool(po *pool) {
	if !po.marked {
		po.marked = true
		m.dirtyPools = append(m.dirtyPools, po)
	}
}

// member reports whether a name is a pool's member: one that is, or of which something is left.
func isMember(l *bus.Ledger) bool {
	return l.Pool != "" && (l.UID != "" || l.Accepted != nil && l.Accepted.Desired != bus.DesiredAbsent ||
		slices.ContainsFunc(l.Retired, func(r bus.Retired) bool { return !r.Gone }))
}

// memberName is the name of a pool's member.
func memberName(pool string, number uint64) string {
	return pool + "-" + strconv.FormatUint(number, 10)
}

// memberNumber is the number in a member's name, 0 where the name is no member's.
func memberNumber(pool, name string) uint64 {
	digits, _ := strings.CutPrefix(name, pool+"-")
	n, _ := strconv.ParseUint(digits, 10, 64) // 0 where it is none
	return n
}

func (m *Model) onPoolIntent(name string, msg bus.Msg) {
	if bad := intents.Label("name", name, bus.MaxPoolName); bad != nil {
		m.sayFleet("IntentRejected", fmt.Sprintf("the intent for pool %.60q is refused: the name %s", name, bad.Message), msg.Seq)
		return
	}
	po := m.pool(name)
	if !po.intent.read(name, msg, intents.ParsePool) {
		return
	}
	po.trace = msg.Header.Get("traceparent")
	if po.intent.bad != nil {
		m.sayPool(po, "IntentRejected", po.intent.rejected(po.ledger.IntentSeq))
	}
	m.markPool(po)
}

func (m *Model) onPoolLedger(name string, msg bus.Msg) {
	if !m.live {
		doc, err := bus.Decode[bus.PoolLedger](msg.Data)
		if err != nil || doc.Name != name {
			m.do(Alarm{"LedgerUnreadable", fmt.Sprintf("the ledger entry of pool %s at sequence %d cannot be read; it is left alone, and its members stay as they are", name, msg.Seq)})
			return
		}
		po := m.pool(name)
		po.ledger, po.ledgerSeq, po.stored = doc, msg.Seq, true
		po.echoes.last = string(msg.Data)
		return
	}
	po := m.pools[name]
	if po == nil || !po.stored {
		m.sayFleet("ForeignWrite", "a ledger entry of pool "+name+" was written by somebody else; it is removed", msg.Seq)
		m.do(ForgetLedger{bus.Msg{Subject: msg.Subject, Seq: msg.Seq}})
		return
	}
	po.ledgerSeq = msg.Seq
	if po.echoes.back(msg.Data) {
		if po.absent() {
			m.markPool(po) // it may be forgotten now
		}
		return
	}
	m.sayPool(po, "ForeignWrite", bus.Event{Cause: "leader", Seq: msg.Seq, Message: "somebody else wrote the ledger entry; it is written again as it was decided"})
	m.commitPool(po)
}

// joinPools takes in what was loaded of pools and their members. A pool whose own entry
// was lost keeps its members as they are until a document says what it should be.
func (m *Model) joinPools() {
	for _, p := range m.proxies {
		if name := p.ledger.Pool; name != "" {
			po := m.pool(name)
			po.ledger.Last = max(po.ledger.Last, memberNumber(name, p.name))
		}
	}
	m.dirtyPools = nil
	for _, po := range sorted(m.pools) {
		po.marked = false
		po.noteTemplate()
	}
	m.markPools()
	for _, p := range sorted(m.proxies) {
		m.noteMember(p)
	}
}

// noteTemplate has the pool know its accepted template again.
func (po *pool) noteTemplate() {
	po.template = ""
	if !po.absent() {
		po.template = digest(po.ledger.Accepted.Template)
	}
}

// PoolVerdict is Verdict for the document of a pool.
func (m *Model) PoolVerdict(name string) (seq uint64, bad *intents.Invalid) {
	po := m.pools[name]
	if po == nil {
		return 0, nil
	}
	return po.intent.seq, po.refusal()
}

// commitPool stores a pool's ledger entry.
func (m *Model) commitPool(po *pool) {
	data := bus.Encode(po.ledger)
	po.echoes.sent(data)
	po.stored = true
	m.do(Commit{Writes: []bus.Write{{Subject: m.cfg.Names.Ledger("pool", po.name), Data: data}}, Trace: po.trace})
}

// sayPool publishes an event about a pool. People may ask for the same again, so time is
// part of its id.
func (m *Model) sayPool(po *pool, reason string, e bus.Event) {
	e.Pool = po.name
	m.say(m.cfg.Names.EventPool(po.name), reason, e, fmt.Sprintf("%s/pool/%s/%d/%d", reason, po.name, e.Seq, m.now.UnixNano()))
}
