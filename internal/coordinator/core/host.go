package core

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
	"proxyfleet/internal/coordinator/placement"
)

// host is what is known of one host.
type host struct {
	name    string
	touched bool // stands in Model.changed

	id        string    // admitted host id; empty: none yet
	session   uint64    // highest of the admitted id
	doc       *bus.Host // newest of the admitted id; nil: none yet
	docSeq    uint64    // of the newest document in the stream
	rival     *bus.Host // newest of another id, which waits until the admitted one is silent
	claimant  string    // the id that beats by the name and was refused
	replaced  bool      // another id's documents stand where those of the admitted one were
	wish      wish
	word      string // why nobody may use the consumer, where no id is admitted
	orders    bus.HostOrders
	lost      time.Time // when it was given up; zero: it was not
	echoes    echoes    // of the ledger entry
	ledgerSeq uint64    // 0 until it came back

	bindings map[string]*binding // by uid
	offer    *placement.Host
	menu     string // digest of what is offered, capacity left out
	room     string // digest of the capacity
	full     []*fullMark
	faults   map[string]string // uid → what its state says of the host

	reachable bool
	runs      runs
	asked     bool      // whether somebody pulls
	lastBeat  time.Time // or when silence began to count
	silentAt  time.Time // when it became unreachable, or its silence began to count anew
	resyncAt  time.Time // no resync before
	drift     drift
	sent      []uint64 // sequences of its messages since decisions began, from the last that it named on

	maintained bool            // its window has begun, as was said
	drained    bool            // as was said
	moving     map[*proxy]bool // drained from it, not yet up elsewhere

	unclaimed  []bus.Unclaimed     // found by the host, not known to the ledger
	strays     map[string]*binding // named by messages, not known to the ledger
	told       map[string]bool     // uids that an event told of as stranded
	conditions conditions
	retry      bool // everything that waits may fit now
	freed      bool // something may fit now
}

func (m *Model) host(name string) *host {
	h := m.hosts[name]
	if h == nil {
		h = &host{name: name, bindings: map[string]*binding{}, offer: &placement.Host{Name: name}, faults: map[string]string{}, strays: map[string]*binding{}, told: map[string]bool{}, moving: map[*proxy]bool{}}
		m.hosts[name] = h
	}
	return h
}

// touch marks a host to be shown, and offered to who waits.
func (m *Model) touch(h *host) {
	if !h.touched {
		h.touched = true
		m.changed = append(m.changed, h)
	}
}

func (m *Model) onHostLedger(name string, msg bus.Msg) {
	h := m.host(name)
	h.ledgerSeq = msg.Seq
	if m.live {
		if !h.echoes.back(msg.Data) {
			m.sayHost(h, "ForeignWrite", bus.Event{Cause: "leader", Seq: msg.Seq, Message: "somebody else wrote the ledger entry of this host; it is written again as it was decided"})
			if h.id != "" {
				m.commitHost(h)
			}
		}
		return
	}
	doc, err := bus.Decode[bus.Ledger](msg.Data)
	if err != nil || doc.HostID == "" {
		return // the host is admitted anew by its own document
	}
	h.id, h.lost, h.echoes.last = doc.HostID, doc.Lost, string(msg.Data)
	h.orders = bus.HostOrders{}
	if doc.Orders != nil {
		h.orders = *doc.Orders
	}
}

const maxHostName = 63 // a DNS label

func (m *Model) onHost(name string, msg bus.Msg) {
	doc, err := bus.Decode[bus.Host](msg.Data)
	if err != nil || doc.HostID == "" || intents.Label("host", name, maxHostName) != nil {
		return // it could not be a key of the inventory, nor be named by an intent
	}
	h := m.host(name)
	h.docSeq = msg.Seq
	if !m.live {
		h.rival = &doc // joinHost decides
		return
	}
	if m.meet(h, &doc); h.doc == &doc {
		m.forgetAbandoned(h)
	}
}

// joinHost takes in what was loaded of a host. Silence begins to count now: nobody
// listened before.
func (m *Model) joinHost(h *host) {
	h.lastBeat, h.silentAt, h.reachable = m.now, m.now, h.lost.IsZero()
	h.maintained = m.maintained(h)
	if h.orders.Removed != nil {
		m.joinRemoved(h)
		return
	}
	known := h.id != ""
	if doc := h.rival; doc != nil {
		h.rival = nil
		m.meet(h, doc)
	}
	for _, b := range sorted(h.bindings) {
		if b.state != nil && h.id != "" && b.state.HostID != h.id {
			b.state = nil
		}
		m.noteFault(b)
		if m.role(b) == unknown {
			m.stranded(b)
		}
	}
	h.offer.Closed = m.closed(h) // before anything is placed
	if known {
		m.do(AdmitHost{h.name, m.admission(h)}) // its consumer may be missing
	}
	m.touch(h)
}

// meet takes in the document of a host, or keeps it waiting while another host of the same
// name lives.
func (m *Model) meet(h *host, doc *bus.Host) {
	if other := m.named(doc.HostID, h); other != nil && doc.HostID != h.id {
		m.meetRenamed(h, other, doc)
		return
	}
	switch {
	case h.id == "":
		m.admit(h, doc)
	case h.orders.Removed != nil && doc.HostID == h.id:
		h.rival = doc
		m.refuseRemoved(h)
	case doc.HostID == h.id:
		m.update(h, doc)
	case !h.reachable:
		m.admit(h, doc)
	default:
		h.replaced = true
		if h.rival == nil || h.rival.HostID != doc.HostID {
			m.refuseClaim(h, doc.HostID)
		}
		h.rival = doc
	}
}

// admit makes doc's host the one of this name, and rewrites what is bound to the name.
func (m *Model) admit(h *host, doc *bus.Host) {
	old := h.id
	if h.id != doc.HostID {
		h.orders = bus.HostOrders{} // they were for another host
	}
	h.id, h.session, h.doc, h.rival = doc.HostID, 0, nil, nil
	h.claimant, h.replaced, h.wish, h.word = "", false, wish{}, ""
	h.lastBeat, h.asked, h.reachable, h.lost = m.now, false, true, time.Time{}
	m.commitHost(h)
	m.do(AdmitHost{h.name, m.admission(h)})
	if old != "" {
		m.do(UnpinHost{h.name})
	}
	m.sayHost(h, "HostAdmitted", bus.Event{Cause: "host", Message: "host id " + doc.HostID + ", backend " + doc.Backend})
	for _, b := range h.bindings {
		if b.state != nil && b.state.HostID != h.id {
			b.state = nil
			delete(h.faults, b.uid)
		}
	}
	m.markHost(h)
	m.update(h, doc)
	for _, b := range sorted(h.bindings) { // that came before it was admitted
		if m.role(b) == unknown {
			m.stranded(b)
		}
	}
}

// admission is what the consumer of a host should say.
func (m *Model) admission(h *host) bus.Admission {
	as := bus.Admission{
		HostID: h.id, Word: fmt.Sprintf("the name %s belongs to host id %s as long as that one lives", h.name, h.id),
		Recovery: m.recovery, Recovers: strings.Join(slices.Sorted(maps.Keys(m.taken)), ","),
		Asked: h.wish.of, Ask: h.wish.id,
	}
	switch {
	case h.orders.Removed != nil:
		as.HostID, as.Word = "", m.removedText(h)
	case h.id == "":
		as.Word = h.word
	}
	return as
}

func (m *Model) commitHost(h *host) {
	doc := bus.Ledger{Type: bus.TypeLedger, Kind: "host", Name: h.name, HostID: h.id, Lost: h.lost}
	if !reflect.DeepEqual(h.orders, bus.HostOrders{}) {
		doc.Orders = &h.orders
	}
	data := bus.Encode(doc)
	h.echoes.sent(data)
	m.do(Commit{Writes: []bus.Write{{Subject: m.cfg.Names.Ledger("host", h.name), Data: data}}})
}

func (m *Model) update(h *host, doc *bus.Host) {
	if old := h.doc; old != nil && (doc.Session < old.Session || doc.Session == old.Session && doc.Counter <= old.Counter) {
		return
	}
	m.noteSession(h, doc.Session)
	h.doc, h.replaced = doc, false
	m.hear(h, doc.Incarnation)
	o := h.offer
	o.Backend, o.Zone, o.Labels, o.Offer = doc.Backend, doc.Zone, doc.Labels, doc.Offer
	m.offers[h.name] = o
	m.noteOffer(h)
	m.claim(h)
	m.touch(h)
}

// noteOffer lifts what was held against an earlier offer.
func (m *Model) noteOffer(h *host) {
	doc := *h.doc
	room := digest(doc.Offer.Capacity)
	doc.Offer.Capacity = bus.Capacity{}
	menu := digest(doc.Backend, doc.Zone, doc.Labels, doc.InPlace, doc.Offer)
	if menu == h.menu && room == h.room {
		return
	}
	h.menu, h.room, h.full, h.retry = menu, room, nil, true
	m.offerFull(h)
}

func digest(parts ...any) string {
	sum := sha256.Sum256(bus.Encode(parts))
	return hex.EncodeToString(sum[:8])
}

// claim answers what the host found and no assignment names: what the ledger knows as
// retired is buried, anything else is left alone and shown.
func (m *Model) claim(h *host) {
	h.unclaimed = nil
	for _, u := range h.doc.Unclaimed {
		p := m.proxies[u.Proxy]
		if p != nil && p.ledger.UID == u.UID && p.ledger.Host == h.name {
			continue // the host has not read its assignments yet
		}
		if p == nil || p.retired(h.name, u.UID) == nil {
			h.unclaimed = append(h.unclaimed, u)
			m.strandedThing(h, u)
			continue
		}
		if r := p.retired(h.name, u.UID); r.Gone && m.frozen == "" {
			d := &decision{p: p, next: p.ledger}
			d.next.Retired = append([]bus.Retired(nil), p.ledger.Retired...)
			for i := range d.next.Retired {
				if again := &d.next.Retired[i]; again.UID == u.UID && again.Host == h.name {
					m.exhume(d, again)
				}
			}
			if b := h.bindings[u.UID]; b != nil {
				b.state = nil // Gone, as it seemed
			}
			m.conclude(d)
		}
	}
}

func (m *Model) strandedThing(h *host, u bus.Unclaimed) {
	if h.told[u.UID] || h.abandoned(u) {
		return
	}
	h.told[u.UID] = true
	m.sayHost(h, "Stranded", bus.Event{Cause: "leader", Proxy: u.Proxy, UID: u.UID, Message: fmt.Sprintf(
		"the ledger does not know uid %s of proxy %s (%s); it is left as it is, for a person to adopt or remove", u.UID, u.Proxy, u.Kind)})
}

// noteSession lets a restarted agent pull at once.
func (m *Model) noteSession(h *host, session uint64) {
	if session <= h.session {
		return
	}
	if h.session != 0 {
		m.do(UnpinHost{h.name})
	}
	h.session = session
	h.drift = drift{}
}

// markHost marks every proxy that the host has something of.
func (m *Model) markHost(h *host) {
	for _, b := range sorted(h.bindings) {
		m.mark(m.proxies[b.proxy])
	}
}

// settleHost shows a host, and offers it to who waits.
func (m *Model) settleHost(h *host) {
	h.touched = false
	if h.orders.Removed != nil {
		m.unput(Hosts, h.name)
		return
	}
	was := h.offer.Closed
	h.offer.Closed = m.closed(h)
	retry, freed := h.retry || was != "" && h.offer.Closed == "", h.freed
	h.retry, h.freed = false, false
	m.showHost(h)
	switch {
	case h.doc == nil:
	case retry:
		m.markWaiting(func(*proxy) bool { return true })
	case freed && h.offer.Closed == "" && len(m.waiting) > 0:
		m.offerRoom(h)
	}
}

// offerRoom marks those who wait and would fit on the host now, the oldest intent first;
// whoever comes too late waits on.
func (m *Model) offerRoom(h *host) {
	m.markWaiting(func(p *proxy) bool {
		if p.ledger.Accepted == nil || p.ledger.UID != "" && p.ledger.Host == h.name && p.ledger.Applied == p.ledger.IntentSeq {
			return false
		}
		req := placement.Request{Spec: p.ledger.Accepted.Spec}
		if p.ledger.Host == h.name && p.ledger.Shape != nil {
			req.Prefer, req.Release = h.name, *p.ledger.Shape
		}
		_, why := placement.Fit(h.offer, &req)
		return why.Fits()
	})
}
