package core

import (
	"proxyfleet/internal/bus"
)

// binding is one uid on one host, as the ledger, an assignment or a state names it.
type binding struct {
	host  *host
	proxy string
	uid   string

	shape bus.Capacity // counted on the host; zero when it takes nothing

	assign    *bus.Assignment // as stored; nil: none
	assignSeq uint64          // 0 until it came back
	echoes    echoes

	state    *bus.State // newest; nil: none
	stateSeq uint64     // of the newest message on the subject, taken or dropped
	noted    uint64     // counter of the state that its host was marked full for
	excused  uint64     // counter of the state whose NoCapacity is no word on the host
}

// role is what the ledger says of a binding.
type role int

const (
	unknown role = iota // no ledger entry names it: it is stranded
	current             // the binding of its proxy
	retired             // must not exist, is not gone yet
	gone                // was retired, and its host said that nothing is left
)

func (m *Model) role(b *binding) role {
	p := m.proxies[b.proxy]
	if p == nil {
		return unknown
	}
	if p.ledger.UID == b.uid && p.ledger.Host == b.host.name {
		return current
	}
	switch r := p.retired(b.host.name, b.uid); {
	case r == nil:
		return unknown
	case r.Gone:
		return gone
	}
	return retired
}

// binding returns what is known of a uid, nil if nothing is.
func (m *Model) binding(hostName, uid string) *binding {
	if h := m.hosts[hostName]; h != nil {
		return h.bindings[uid]
	}
	return nil
}

func (m *Model) bind(hostName, proxy, uid string) *binding {
	h := m.host(hostName)
	b := h.bindings[uid]
	if b == nil {
		b = &binding{host: h, proxy: proxy, uid: uid}
		h.bindings[uid] = b
	}
	return b
}

// drop forgets a binding of which nothing is stored any more.
func (m *Model) drop(b *binding) {
	m.take(b, bus.Capacity{})
	delete(b.host.faults, b.uid)
	delete(b.host.strays, b.uid)
	delete(b.host.bindings, b.uid)
	m.touch(b.host)
}

// take makes the binding count as shape on its host.
func (m *Model) take(b *binding, shape bus.Capacity) {
	if b.shape == shape {
		return
	}
	t := &b.host.offer.Bound
	t.VCPUs += shape.VCPUs - b.shape.VCPUs
	t.MemoryMiB += shape.MemoryMiB - b.shape.MemoryMiB
	t.DiskGiB += shape.DiskGiB - b.shape.DiskGiB
	t.Slots += shape.Slots - b.shape.Slots
	if shape.Slots < b.shape.Slots {
		b.host.freed = true
	}
	b.shape = shape
	m.touch(b.host)
}

func (m *Model) onAssign(at bus.Parsed, msg bus.Msg) {
	b := m.bind(at.Host, at.Proxy, at.UID)
	b.assignSeq = msg.Seq
	if m.live && b.host.orders.Removed != nil {
		if b.echoes.back(msg.Data); b.echoes.settled() {
			m.retire(b)
		}
		return
	}
	if m.live && b.echoes.back(msg.Data) {
		if b.echoes.settled() && m.role(b) == gone {
			m.mark(m.proxies[b.proxy])
		}
		return
	}
	doc, err := bus.Decode[bus.Assignment](msg.Data)
	if err != nil {
		doc = bus.Assignment{} // differs from whatever was decided
	}
	b.assign, b.echoes.last = &doc, string(msg.Data)
	if !m.live {
		return
	}
	if m.role(b) == unknown {
		m.stranded(b)
		return
	}
	p := m.proxies[b.proxy]
	p.verify = true
	m.mark(p)
}

func (m *Model) onState(at bus.Parsed, msg bus.Msg) {
	s, err := bus.Decode[bus.State](msg.Data)
	if err != nil || s.UID != at.UID || s.Proxy != at.Proxy {
		return
	}
	b := m.bind(at.Host, at.Proxy, at.UID)
	b.stateSeq = msg.Seq
	if m.live && b.host.orders.Removed != nil {
		if b.echoes.settled() {
			m.retire(b)
		}
		return
	}
	if m.live && b.host.id != "" && s.HostID != b.host.id {
		b.host.replaced = b.host.replaced || b.state != nil
		return // of a host that was replaced, or is not admitted
	}
	// While loading the newest that is stored counts, as it does when all is read at once.
	if old := b.state; m.live && old != nil && (s.Session < old.Session || s.Session == old.Session && s.Counter <= old.Counter) {
		return
	}
	b.state = &s
	if !m.live {
		return
	}
	m.noteFault(b)
	if m.role(b) == unknown {
		m.stranded(b)
		return
	}
	m.mark(m.proxies[b.proxy])
}

// stranded handles a binding that no ledger entry names: it is left alone and shown, for
// something may only be missing from the ledger. What is gone by its host's own word is
// tidied up.
func (m *Model) stranded(b *binding) {
	m.touch(b.host)
	if b.state != nil && b.state.Phase == bus.PhaseGone && (b.assign == nil || b.assign.Tombstone()) {
		m.retire(b)
		return
	}
	if b.state == nil && (b.assign == nil || b.assign.Tombstone()) {
		return // its host answers when there is something to say
	}
	b.host.strays[b.uid] = b
	if b.host.id == "" {
		return // told when it is admitted, unless it was only renamed
	}
	m.strandedThing(b.host, bus.Unclaimed{Proxy: b.proxy, UID: b.uid, Kind: "binding"})
}

// retire removes what is stored of a binding that is gone.
func (m *Model) retire(b *binding) {
	names := m.cfg.Names
	m.do(Retire{
		Assign: bus.Msg{Subject: names.Assign(b.host.name, b.proxy, b.uid), Seq: b.assignSeq},
		State:  bus.Msg{Subject: names.StateProxy(b.host.name, b.proxy, b.uid), Seq: b.stateSeq},
	})
	m.drop(b)
}
