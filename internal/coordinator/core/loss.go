package core

import (
	"fmt"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// DeclareLost says that a silent host is lost: its proxies are placed elsewhere now,
// whatever the delay and however many others are silent.
type DeclareLost struct {
	Host   string `json:"host"`
	Reason string `json:"reason,omitempty"`
}

func (c DeclareLost) decide(m *Model) (any, *intents.Invalid) {
	h, bad := m.known(c.Host)
	if bad != nil {
		return nil, bad
	}
	if h.reachable {
		return nil, &intents.Invalid{Code: codeNotLost, Field: "host", Message: fmt.Sprintf("host %s still beats; drain it instead", h.name)}
	}
	if h.lost.IsZero() {
		m.lose(h, "person", "declared lost"+because(c.Reason))
	}
	return m.hostRecord(h), nil
}

// codeNotLost says that a host lives.
const codeNotLost = "NotLost"

// tickLosses gives up hosts that have been silent for long, but never many at once: when
// more than half of the hosts are silent, and two at least, it is likelier that the
// coordinator is the one cut off. None is given up then, until enough are back or a person
// declares one lost. Hosts that were given up already, that were removed or are in
// maintenance count on neither side.
func (m *Model) tickLosses() {
	var known, silent int
	var overdue []*host
	for _, h := range sorted(m.hosts) {
		if h.id == "" || h.orders.Removed != nil || !h.lost.IsZero() || m.maintained(h) {
			continue
		}
		known++
		if h.reachable {
			continue
		}
		silent++
		if m.now.Sub(h.silentAt) >= m.cfg.LossDelay {
			overdue = append(overdue, h)
		}
	}
	held := silent >= 2 && 2*silent > known
	switch {
	case held && len(overdue) > 0:
		m.holdLosses(fmt.Sprintf("%d of %d hosts are silent: likelier is that the coordinator is cut off; none of them is given up until enough are back, or a person declares one lost", silent, known))
	case held:
	case m.lossHeld != "":
		m.lossHeld = ""
		m.sayFleet("LossesJudgedAgain", fmt.Sprintf("%d of %d hosts are silent; they have %s to come back", silent, known, m.cfg.LossDelay), 0)
		m.restartSilence()
		m.markSilent()
	default:
		for _, h := range overdue {
			m.lose(h, "host", fmt.Sprintf("silent for %s; its proxies are placed elsewhere", m.now.Sub(h.lastBeat).Round(time.Second)))
		}
	}
}

func (m *Model) holdLosses(why string) {
	if m.lossHeld != "" {
		return
	}
	m.lossHeld = why
	m.do(Alarm{"HostsSilent", why})
	m.sayFleet("HostsSilent", why, 0)
	m.markSilent()
}

// markSilent marks what silent hosts have: the reason why it waits has changed.
func (m *Model) markSilent() {
	for _, h := range sorted(m.hosts) {
		if !h.reachable {
			m.markHost(h)
		}
	}
}

// restartSilence has every silent host's time begin anew.
func (m *Model) restartSilence() {
	for _, h := range m.hosts {
		if !h.reachable {
			h.silentAt = m.now
		}
	}
}

// lose gives a host up.
func (m *Model) lose(h *host, cause, why string) {
	h.lost = m.now
	m.commitHost(h)
	m.shutNow(h)
	m.sayHost(h, "HostLost", bus.Event{Cause: cause, Message: why})
	m.touch(h)
	m.markHost(h)
}

// back ends what silence meant for a host.
func (m *Model) back(h *host) {
	h.reachable = true
	if h.wish.of != "" && h.wish.of != h.id {
		h.wish = wish{}
		m.do(AdmitHost{h.name, m.admission(h)}) // another one was asked meanwhile
	}
	text := "it beats again"
	if !h.lost.IsZero() {
		h.lost = time.Time{}
		text += "; what was placed elsewhere meanwhile is removed from it"
		m.commitHost(h)
	}
	m.sayHost(h, "HostBack", bus.Event{Cause: "host", Message: text})
	m.touch(h)
	m.markHost(h)
	m.markWaiting(func(p *proxy) bool { return true })
}

// onReconnected begins every host's time anew: nobody listened for a while.
func (m *Model) onReconnected() {
	for _, h := range m.hosts {
		if h.reachable {
			h.lastBeat = m.now
		}
	}
	m.restartSilence()
}
