package core

import (
	"time"

	"proxyfleet/internal/bus"
)

// unload takes back what was loaded of a subject that was ended since: a model that has
// followed the streams for long is then the same as one that reads them now. Once the model
// is live it ends things itself, and what others end decides nothing.
func (m *Model) unload(at bus.Parsed) {
	switch {
	case at.Kind == "ledger" && at.Class == "proxy":
		if p := m.proxies[at.Name]; p != nil {
			p.ledger, p.ledgerSeq, p.stored, p.echoes = emptyLedger(at.Name), 0, false, echoes{}
		}
	case at.Kind == "ledger" && at.Class == "pool":
		if po := m.pools[at.Name]; po != nil {
			po.ledger, po.ledgerSeq, po.stored, po.echoes = emptyPoolLedger(at.Name), 0, false, echoes{}
		}
	case at.Kind == "ledger" && at.Class == "fleet":
		m.frozen, m.recovery, m.fleetEchoes = "", "", echoes{}
		m.taken, m.heard = map[string]bool{}, map[string]bool{}
	case at.Kind == "ledger" && at.Class == "host":
		if h := m.hosts[at.Name]; h != nil {
			h.id, h.orders, h.lost, h.echoes = "", bus.HostOrders{}, time.Time{}, echoes{}
		}
	case at.Kind == "assign":
		if b := m.binding(at.Host, at.UID); b != nil {
			b.assign, b.assignSeq, b.echoes = nil, 0, echoes{}
			m.unbindEmpty(b)
		}
	case at.Kind == "state" && at.Class == "proxy":
		if b := m.binding(at.Host, at.UID); b != nil {
			b.state, b.stateSeq = nil, 0
			m.unbindEmpty(b)
		}
	case at.Kind == "state" && at.Class == "host":
		if h := m.hosts[at.Host]; h != nil {
			h.rival = nil
		}
	}
}

// unbindEmpty forgets a loaded binding of which nothing is stored any more.
func (m *Model) unbindEmpty(b *binding) {
	if b.assign == nil && b.state == nil {
		delete(b.host.bindings, b.uid)
	}
}
