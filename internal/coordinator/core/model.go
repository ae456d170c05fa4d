package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
	"proxyfleet/internal/coordinator/placement"
)

// Config are the model's constants. Zero durations take the defaults.
type Config struct {
	Names        bus.Names
	Installation bus.Installation
	// Silence without a beat makes a host suspect; it is unreachable once nobody pulls its
	// assignments either. Default 20 s: four beats.
	Silence time.Duration
	// FullFor is how long a host that said NoCapacity is not asked again for that shape,
	// unless its offer changes. It doubles with each time in a row, up to 32 times.
	// Default 1 min.
	FullFor time.Duration
	// LossDelay is how long a host may be unreachable until its proxies are placed
	// elsewhere. Default 5 min.
	LossDelay time.Duration
	// MovesPerTick bounds how many proxies leave lost and drained hosts between two ticks,
	// so that neither is a storm. Default 20.
	MovesPerTick int
	// DrainAtOnce bounds how many proxies of one drained host are on their way elsewhere.
	// Default 5.
	DrainAtOnce int
	// Remember is how long the ledger knows a retired uid after it is gone. Default 90 days.
	Remember time.Duration
}

func (c Config) withDefaults() Config {
	c.Silence = cmp.Or(c.Silence, 20*time.Second)
	c.FullFor = cmp.Or(c.FullFor, time.Minute)
	c.LossDelay = cmp.Or(c.LossDelay, 5*time.Minute)
	c.MovesPerTick = cmp.Or(c.MovesPerTick, 20)
	c.DrainAtOnce = cmp.Or(c.DrainAtOnce, 5)
	c.Remember = cmp.Or(c.Remember, 90*24*time.Hour)
	return c
}

// Model is everything that the coordinator knows. It is used by one goroutine.
type Model struct {
	cfg  Config
	live bool // everything stored is loaded; decisions are made
	now  time.Time
	uids uidSource

	proxies     map[string]*proxy
	pools       map[string]*pool
	hosts       map[string]*host
	offers      map[string]*placement.Host // hosts as placement sees them
	waiting     map[*proxy]bool            // an accepted intent waits for a host
	held        map[*proxy]bool            // an intent waits until streams have room
	queue       map[*proxy]bool            // to leave a lost or drained host in its turn
	keepers     map[*proxy][]string        // anti-affinity of the intents that have one
	turns       int                        // moves left until the next tick
	dirty       []*proxy                   // to be reconciled, in order
	dirtyPools  []*pool
	changed     []*host                    // to be shown, and offered to who waits
	put         [Buckets]map[string]string // the inventory as commanded last, by bucket
	high        uint64                     // highest sequence seen in the assignments stream
	stored      uint64                     // highest sequence of our own writes, which come back as messages
	base        uint64                     // of those that were there when decisions began
	full        string                     // why only deletions are taken on, or empty
	frozen      string                     // why nothing is deleted or moved, or empty
	recovery    string                     // last recovery, a ULID; empty: there was none
	taken       map[string]bool            // incarnations that recoveries took along
	heard       map[string]bool            // others that hosts work for
	fleetEchoes echoes
	setback     setback
	lossHeld    string    // why no host is given up, or empty
	pruneAt     time.Time // when to look for uids to forget
	commits     []Command // of this step
	commands    []Command // of this step, to follow the commits
}

// New returns an empty model.
func New(cfg Config) *Model {
	m := &Model{
		cfg:     cfg.withDefaults(),
		proxies: map[string]*proxy{},
		pools:   map[string]*pool{},
		hosts:   map[string]*host{},
		offers:  map[string]*placement.Host{},
		waiting: map[*proxy]bool{},
		heard:   map[string]bool{},
		taken:   map[string]bool{},
		held:    map[*proxy]bool{},
		queue:   map[*proxy]bool{},
		keepers: map[*proxy][]string{},
	}
	for i := range m.put {
		m.put[i] = map[string]string{}
	}
	return m
}

// Step takes events in and returns what is to be done about them: commits first, in order,
// then everything that follows from them.
func (m *Model) Step(in Input) []Command {
	m.now, m.uids, m.stored = in.Now, uidSource{seed: in.Seed}, in.Stored
	m.commits, m.commands = nil, nil
	for _, e := range in.Events {
		switch e := e.(type) {
		case Message:
			m.onMessage(bus.Msg(e))
		case CaughtUp:
			m.onCaughtUp(e)
		case Beat:
			m.onBeat(e)
		case Pulls:
			m.onPulls(e)
		case Usage:
			m.onUsage(e)
		case Reconnected:
			m.onReconnected()
		case Request:
			m.onRequest(e)
		case Tick:
			m.onTick()
		}
	}
	m.settle()
	return append(m.commits, m.commands...)
}

// settle reconciles until nothing is marked any more. A proxy that frees room marks its
// host, a host marks who waits; both only shrink what is waited for, so it ends.
func (m *Model) settle() {
	if !m.live {
		return
	}
	for len(m.dirty) > 0 || len(m.dirtyPools) > 0 || len(m.changed) > 0 {
		for len(m.dirty) > 0 {
			p := m.dirty[0]
			m.dirty = m.dirty[1:]
			p.marked = false
			m.reconcile(p)
		}
		pools := m.dirtyPools
		m.dirtyPools = nil
		for _, po := range pools {
			po.marked = false
			m.reconcilePool(po)
		}
		hosts := m.changed
		m.changed = nil
		for _, h := range hosts {
			m.settleHost(h)
		}
	}
	m.dirty = nil
}

func (m *Model) mark(p *proxy) {
	if p != nil && !p.marked {
		p.marked = true
		m.dirty = append(m.dirty, p)
	}
}

// markWaiting marks those for whom retry says that it may help, the oldest intent first.
func (m *Model) markWaiting(retry func(*proxy) bool) {
	var ps []*proxy
	for p := range m.waiting {
		if retry(p) {
			ps = append(ps, p)
		}
	}
	slices.SortFunc(ps, func(a, b *proxy) int {
		return cmp.Or(cmp.Compare(a.ledger.IntentSeq, b.ledger.IntentSeq), cmp.Compare(a.name, b.name))
	})
	for _, p := range ps {
		m.mark(p)
	}
}

func (m *Model) do(c Command) {
	if _, ok := c.(Commit); ok {
		m.commits = append(m.commits, c)
		return
	}
	m.commands = append(m.commands, c)
}

func (m *Model) onMessage(msg bus.Msg) {
	at, ok := m.cfg.Names.Parse(msg.Subject)
	if !ok {
		m.noteStray(msg)
		return
	}
	if at.Kind == "assign" || at.Kind == "ledger" || at.Kind == "fence" {
		m.high = max(m.high, msg.Seq)
	}
	if at.Kind == "intent" {
		m.setback.high = max(m.setback.high, msg.Seq)
	}
	if at.Kind == "assign" && m.live {
		h := m.host(at.Host)
		h.sent = append(h.sent, msg.Seq)
	}
	if len(msg.Data) == 0 && at.Kind != "intent" { // a marker: something was removed, and absence decides nothing
		if !m.live {
			m.unload(at)
		}
		return
	}
	switch {
	case at.Kind == "intent" && at.Class == "proxy":
		m.onIntent(at.Name, msg)
	case at.Kind == "intent" && at.Class == "pool":
		m.onPoolIntent(at.Name, msg)
	case at.Kind == "ledger" && at.Class == "proxy":
		m.onLedger(at.Name, msg)
	case at.Kind == "ledger" && at.Class == "pool":
		m.onPoolLedger(at.Name, msg)
	case at.Kind == "ledger" && at.Class == "fleet":
		m.onFleetLedger(msg)
	case at.Kind == "ledger" && at.Class == "host":
		m.onHostLedger(at.Name, msg)
	case at.Kind == "assign":
		m.onAssign(at, msg)
	case at.Kind == "state" && at.Class == "proxy":
		m.onState(at, msg)
	case at.Kind == "state" && at.Class == "host":
		m.onHost(at.Host, msg)
	}
}

// onCaughtUp joins what was loaded, and begins to decide.
func (m *Model) onCaughtUp(e CaughtUp) {
	if m.live {
		return
	}
	m.live, m.base = true, m.high
	m.turns = m.cfg.MovesPerTick
	m.pruneAt = m.now.Add(pruneEvery)
	m.dirty = nil
	for _, p := range m.byAge() {
		p.marked = false
		m.join(p)
		m.mark(p)
	}
	for _, h := range sorted(m.hosts) {
		m.joinHost(h)
	}
	m.joinDrains()
	m.joinPools()
	if e.Lost != "" {
		m.freeze(e.Lost)
	}
	m.joinSetback(e.Intents)
}

// byAge is every proxy, the oldest newest intent first, those without one last by name: the
// same order however the model came about.
func (m *Model) byAge() []*proxy {
	return slices.SortedFunc(maps.Values(m.proxies), func(a, b *proxy) int {
		return cmp.Or(cmp.Compare(a.intent.seq-1, b.intent.seq-1), cmp.Compare(a.name, b.name)) // 0-1 is the highest
	})
}

func (m *Model) onUsage(u Usage) {
	if u.Full == m.full {
		return
	}
	if m.full = u.Full; u.Full != "" {
		m.do(Alarm{"StreamFull", u.Full + "; only deletions are taken on"})
	}
	for p := range m.held {
		m.mark(p)
	}
	slices.SortFunc(m.dirty, func(a, b *proxy) int { return cmp.Compare(a.name, b.name) })
	m.markPools()
}

const pruneEvery = time.Hour

func (m *Model) onTick() {
	if !m.live {
		return
	}
	for _, h := range sorted(m.hosts) {
		m.tickHost(h)
	}
	m.tickLosses()
	m.tickSetback()
	m.tickTurns()
	for _, h := range sorted(m.hosts) {
		m.tickDrain(h)
	}
	m.tickPools()
	if m.now.Before(m.pruneAt) {
		return
	}
	m.pruneAt = m.now.Add(pruneEvery)
	m.pruneHosts()
	for _, p := range sorted(m.proxies) {
		if m.forgettable(p) {
			m.mark(p)
		}
	}
}

// Verdict returns the newest intent seen for a proxy, and why it was refused, if it was.
// seq is 0 while none was seen.
func (m *Model) Verdict(name string) (seq uint64, bad *intents.Invalid) {
	p := m.proxies[name]
	if p == nil {
		return 0, nil
	}
	return p.intent.seq, p.refusal()
}
