package core

import (
	"fmt"
	"time"

	"proxyfleet/internal/bus"
)

// setback is what is known of a stream of intents that has gone back behind what the ledger
// accepted: it was restored from an older copy, or lost its end.
type setback struct {
	end  uint64    // last sequence when decisions began
	high uint64    // and highest seen since
	look time.Time // when to believe it; zero: nothing is amiss
}

// setbackPatience is for a server that became the stream's leader a moment ago: it has all
// that was acked, but may not have applied it yet.
const setbackPatience = 10 * time.Second

// of reports whether there is less of a name than was accepted, and to which sequence the
// ledger has to go back, so that what is published counts as newer. there is that of the
// newest document of the name; 0: there is none.
func (s setback) of(accepted, there uint64) (to uint64, behind bool) {
	switch {
	case there == 0:
		return s.high, accepted > s.high
	case there > s.end: // published since
		return there - 1, there < accepted
	}
	return there, there < accepted
}

func (m *Model) joinSetback(end uint64) {
	m.setback = setback{end: end, high: end}
	for _, p := range m.proxies {
		if _, behind := m.setback.of(p.ledger.IntentSeq, p.intent.seq); behind && p.ledger.Pool == "" {
			m.setback.look = m.now.Add(setbackPatience)
		}
	}
	for _, po := range m.pools {
		if _, behind := m.setback.of(po.ledger.IntentSeq, po.intent.seq); behind {
			m.setback.look = m.now.Add(setbackPatience)
		}
	}
}

// doubts reports whether an intent is not to be taken on before it is known whether its
// stream was restored: the ledger does not know the name, and may have forgotten it.
func (m *Model) doubts(seq uint64, known bool) bool {
	return !m.setback.look.IsZero() && !known && seq <= m.setback.end
}

// tickSetback has the ledger's sequences go back as well. Else whatever is published would
// have a sequence that counts as old, and be ignored for ever. What was accepted stays in
// force. The fleet is frozen, because what the ledger has forgotten may be asked for again
// by what was restored.
func (m *Model) tickSetback() {
	s := m.setback
	if s.look.IsZero() || m.now.Before(s.look) {
		return
	}
	m.setback.look = time.Time{}
	var accepted uint64
	for _, p := range sorted(m.proxies) {
		l := &p.ledger
		to, behind := s.of(l.IntentSeq, p.intent.seq)
		if !behind || l.Pool != "" { // a member's sequence is its pool's
			continue
		}
		accepted = max(accepted, l.IntentSeq)
		lower(l, to)
		m.commitLedger(p, nil)
	}
	for _, po := range sorted(m.pools) {
		to, behind := s.of(po.ledger.IntentSeq, po.intent.seq)
		if !behind {
			continue
		}
		accepted = max(accepted, po.ledger.IntentSeq)
		po.ledger.IntentSeq = to
		m.commitPool(po)
	}
	for _, p := range m.byAge() {
		m.mark(p)
	}
	m.markPools()
	if accepted > 0 {
		m.freeze(fmt.Sprintf("intent %d was accepted, and %s ended at %d when this coordinator began to lead, or had older ones of some names: it was restored. "+
			"What was accepted stays in force, and what is published from now on counts", accepted, m.cfg.Names.Intents(), s.end))
	}
}

// lower has an entry's sequences go back. A change that waits goes on waiting.
func lower(l *bus.Ledger, to uint64) {
	waits := l.Applied < l.IntentSeq
	l.IntentSeq, l.Applied = to, min(l.Applied, to)
	if waits && to > 0 {
		l.Applied = min(l.Applied, to-1)
	}
}
