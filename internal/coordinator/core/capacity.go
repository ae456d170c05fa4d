package core

import (
	"time"

	"proxyfleet/internal/coordinator/placement"
)

// fullMark says that a host had no room for something, by its own word.
type fullMark struct {
	what  placement.Full
	until time.Time // it may be asked again
	times int       // in a row, for the next wait
}

// maxFullDoublings bounds how long a host is not asked: FullFor × 32.
const maxFullDoublings = 5

// noteFull marks the host full for the binding's shape, and the port that it asked for
// (0: none), once for each state that says so.
func (m *Model) noteFull(b *binding, port int) {
	if b.noted == b.state.Counter {
		return
	}
	b.noted = b.state.Counter
	h, what := b.host, placement.Full{Shape: b.shape, Port: port}
	var mark *fullMark
	for _, f := range h.full {
		if f.what == what {
			mark = f
		}
	}
	if mark == nil {
		mark = &fullMark{what: what}
		h.full = append(h.full, mark)
	}
	if m.now.Before(mark.until) {
		return // another proxy said the same
	}
	mark.until = m.now.Add(m.cfg.FullFor << min(mark.times, maxFullDoublings))
	mark.times++
	m.offerFull(h)
}

// offerFull tells placement what the host is full for, and reports whether one is
// no longer.
func (m *Model) offerFull(h *host) (lifted bool) {
	before := len(h.offer.Full)
	h.offer.Full = h.offer.Full[:0]
	for _, f := range h.full {
		if m.now.Before(f.until) {
			h.offer.Full = append(h.offer.Full, f.what)
		}
	}
	m.touch(h)
	return len(h.offer.Full) < before
}

// tickFull lifts marks whose time has come.
func (m *Model) tickFull(h *host) {
	for _, f := range h.full {
		if len(h.offer.Full) > 0 && !m.now.Before(f.until) {
			h.retry = m.offerFull(h) || h.retry
			return
		}
	}
}
