package core

import (
	"fmt"
	"slices"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// drift is what the last beat said, to tell lasting differences from messages on their way.
type drift struct {
	theirs, ours string // digests
	ahead        uint64 // an assignment sequence that we had not seen
}

func (m *Model) onBeat(beat Beat) {
	h := m.hosts[beat.Host]
	doc := beat.Doc
	if m.live && doc.NoConsumer && (h == nil || h.id == "") && intents.Label("host", beat.Host, maxHostName) == nil {
		// Its document was lost with the streams: it says everything again once it can see them.
		unknown := &host{name: beat.Host, id: doc.HostID}
		m.do(AdmitHost{beat.Host, m.admission(unknown)})
	}
	if m.live && h != nil && h.id != doc.HostID {
		m.noteClaim(h, doc)
		return
	}
	if m.live && h != nil && h.orders.Removed != nil && doc.NoConsumer {
		m.refuseRemoved(h) // nothing else would tell its agent why nothing comes any more
	}
	if !m.live || h == nil || h.orders.Removed != nil {
		return
	}
	m.noteRun(h, doc.Run)
	if doc.Session < h.session {
		return
	}
	m.noteSession(h, doc.Session)
	h.lastBeat, h.asked = m.now, false
	if !h.reachable {
		m.back(h)
	}
	if h.doc == nil || h.replaced {
		m.askAll(h, h.id)
	}
	if h.doc == nil && h.assigned() { // what it said before of what is gone may be lost as well
		m.resync(h, "its document is not stored")
	}
	m.noteIncarnation(h, doc)
	if doc.NoConsumer {
		m.do(AdmitHost{h.name, m.admission(h)})
	}
	switch {
	case doc.Resync && h.assigned():
		m.resync(h, "its record was lost")
	case m.drifted(h, doc):
		m.resync(h, "its digest differs from what it reported")
	}
}

// resync has all of a host's assignments delivered again. The host answers each with its
// state. It takes a while, so repeated beats do not start it anew.
func (m *Model) resync(h *host, why string) {
	if m.now.Before(h.resyncAt) {
		return
	}
	h.resyncAt = m.now.Add(m.cfg.Silence)
	h.drift = drift{}
	m.do(ResyncHost{h.name, m.admission(h)})
	m.sayHost(h, "Resync", bus.Event{Cause: "host", Message: why + "; all its assignments are delivered again"})
}

// assigned reports whether there is anything to deliver to the host.
func (h *host) assigned() bool {
	for _, b := range h.bindings {
		if b.assign != nil {
			return true
		}
	}
	return false
}

// drifted reports whether host and coordinator have differed since the last beat without
// anything having changed on either side.
func (m *Model) drifted(h *host, doc bus.Beat) bool {
	if doc.Digest == "" {
		return false
	}
	now := drift{theirs: doc.Digest, ours: m.digest(h), ahead: h.drift.ahead}
	lasting := now.theirs != now.ours && now.theirs == h.drift.theirs && now.ours == h.drift.ours
	h.drift = now
	return lasting
}

// digest is what the host's beats should carry: of every state but those that are gone.
func (m *Model) digest(h *host) string {
	var states []bus.State
	for _, b := range h.bindings {
		if b.state != nil && b.state.Phase != bus.PhaseGone {
			states = append(states, *b.state)
		}
	}
	return bus.Digest(states)
}

// noteIncarnation freezes deletions and moves when a host has recorded what these streams
// never held: they were lost, recreated or restored, and what they say may be old.
func (m *Model) noteIncarnation(h *host, doc bus.Beat) {
	m.hear(h, doc.Incarnation)
	// It counts in sequences of before, or we have not read all that it can have had from us: a
	// network that has parted lets beats through before it lets streams be read.
	if doc.Recovery != m.recovery || m.high < m.stored {
		h.drift.ahead = 0
		return
	}
	if ahead := h.drift.ahead; ahead > m.high {
		m.freeze(fmt.Sprintf("host %s has recorded assignment %d; the stream ends at %d", h.name, ahead, m.high))
	} else if ahead > m.base && ahead == doc.Seq && !slices.ContainsFunc(h.sent, func(seq uint64) bool { return seq >= ahead }) {
		// None that it could have had, and none that may have replaced it before we read it.
		m.freeze(fmt.Sprintf("host %s has recorded assignment %d, which is another message in this stream", h.name, ahead))
	}
	h.drift.ahead = doc.Seq // judged at the next beat: ours may be on its way
	h.sent = slices.DeleteFunc(h.sent, func(seq uint64) bool { return seq < doc.Seq })
}

func (m *Model) tickHost(h *host) {
	if h.orders.Removed != nil {
		return
	}
	m.tickFull(h)
	m.tickOrders(h)
	m.tickRuns(h)
	if h.reachable && h.id != "" && !h.asked && m.now.Sub(h.lastBeat) >= m.cfg.Silence {
		h.asked = true
		m.do(AskPulls{h.name})
	}
}

func (m *Model) onPulls(e Pulls) {
	h := m.hosts[e.Host]
	if !m.live || h == nil || !h.asked || !h.reachable {
		return
	}
	h.asked = false
	if e.Pulling { // its beats are lost, but it lives
		h.lastBeat = m.now
		return
	}
	m.hostSilent(h)
}

// hostSilent is where a host becomes unreachable. Another one that waits for the name is
// heard at its next beat.
func (m *Model) hostSilent(h *host) {
	h.reachable, h.silentAt = false, m.now
	for _, other := range sorted(m.hosts) {
		if rival := other.rival; rival != nil && rival.HostID == h.id {
			m.meet(other, rival) // it has a new name
			return
		}
	}
	m.sayHost(h, "HostUnreachable", bus.Event{Cause: "host", Message: fmt.Sprintf("no beat for %s, and nobody pulls its assignments; what runs there is left as it is", m.now.Sub(h.lastBeat))})
	m.touch(h)
	m.markHost(h)
}
