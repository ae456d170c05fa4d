package core

import (
	"fmt"
	"time"

	"proxyfleet/internal/bus"
)

// A host's documents have one subject for each name, so another host of the name would
// replace them. Its agent says nothing there while the consumer is another's: all that is
// heard of it are beats, which are stored nowhere.

// wish is that the agent of a host id say everything again.
type wish struct {
	of, id string    // host id; a ULID of the wish
	next   time.Time // no other wish of the same host id before
}

// noteClaim takes in the beat of another host id than the admitted one.
func (m *Model) noteClaim(h *host, doc bus.Beat) {
	other := m.named(doc.HostID, h)
	switch {
	case h.id == "" && (h.rival == nil || h.rival.HostID == doc.HostID):
		return // its document comes, or waits until its other name is silent
	case h.id != "" && h.reachable:
		if h.claimant != doc.HostID && (h.rival == nil || h.rival.HostID != doc.HostID) {
			m.refuseClaim(h, doc.HostID)
		}
		h.claimant = doc.HostID
	case other != nil && (other.reachable || other.orders.Removed != nil):
		return // it is a host of the fleet by another name
	case h.rival != nil && h.rival.HostID == doc.HostID:
		m.meet(h, h.rival)
	default:
		m.askAll(h, doc.HostID)
	}
}

func (m *Model) refuseClaim(h *host, id string) {
	m.sayHost(h, "HostRefused", bus.Event{Cause: "host", Message: fmt.Sprintf(
		"host id %s claims the name while host id %s still beats; it is admitted once that is silent", id, h.id)})
}

// askAll asks the agent of a host id for everything that it has to say: what was stored of it
// is not there, or it was not heard yet. It answers within ten seconds (see
// [bus.HostLink.OnAdmission]), so repeated beats do not ask anew.
func (m *Model) askAll(h *host, id string) {
	if h.wish.of == id && m.now.Before(h.wish.next) {
		return
	}
	h.wish = wish{of: id, id: m.uids.next(m.now), next: m.now.Add(m.cfg.Silence)}
	m.do(AdmitHost{h.name, m.admission(h)})
}
