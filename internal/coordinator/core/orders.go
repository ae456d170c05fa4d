package core

import (
	"cmp"
	"fmt"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/intents"
)

// Cordon keeps new proxies away from a host; what is there stays. It is answered by the
// host's [bus.HostRecord], and so are the other requests about a host.
type Cordon struct {
	Host   string `json:"host"`
	Reason string `json:"reason,omitempty"` // for people
}

// Drain cordons a host and has its proxies placed elsewhere, a few at a time; those that
// fit nowhere else stay where they are and say why.
type Drain struct {
	Host   string `json:"host"`
	Reason string `json:"reason,omitempty"`
}

// Maintain cordons a host from From (zero: now) until Until. Its silence is no loss
// meanwhile, and it opens by itself. One window at a time: a new one replaces the last.
type Maintain struct {
	Host   string    `json:"host"`
	From   time.Time `json:"from,omitzero"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
}

// Uncordon takes back everything that was asked for a host: cordon, drain and window. It
// also welcomes a host back that was removed.
type Uncordon struct {
	Host string `json:"host"`
}

func (c Cordon) decide(m *Model) (any, *intents.Invalid) {
	return m.orderHost(c.Host, "Cordoned", "nothing new is placed there"+because(c.Reason), func(o *bus.HostOrders) {
		o.Cordon = m.ordered(o.Cordon, c.Reason)
	})
}

func (c Drain) decide(m *Model) (any, *intents.Invalid) {
	return m.orderHost(c.Host, "DrainBegins", "its proxies are placed elsewhere"+because(c.Reason), func(o *bus.HostOrders) {
		o.Drain = m.ordered(o.Drain, c.Reason)
	})
}

func (c Maintain) decide(m *Model) (any, *intents.Invalid) {
	from := c.From.UTC()
	if from.Before(m.now) {
		from = m.now
	}
	if !c.Until.After(from) {
		return nil, &intents.Invalid{Code: intents.CodeInvalid, Field: "until", Message: "is not after the window begins"}
	}
	w := &bus.Window{From: from, Until: c.Until.UTC(), Reason: c.Reason}
	text := fmt.Sprintf("a maintenance window from %s until %s%s", w.From.Format(time.RFC3339), w.Until.Format(time.RFC3339), because(c.Reason))
	return m.orderHost(c.Host, "MaintenancePlanned", text, func(o *bus.HostOrders) { o.Maintenance = w })
}

func (c Uncordon) decide(m *Model) (any, *intents.Invalid) {
	if h := m.hosts[c.Host]; h != nil && h.orders.Removed != nil {
		return m.welcome(h)
	}
	return m.orderHost(c.Host, "Uncordoned", "it takes proxies again", func(o *bus.HostOrders) {
		o.Cordon, o.Drain, o.Maintenance = nil, nil, nil
	})
}

// orderHost changes what is asked for a host, stores it and says so.
func (m *Model) orderHost(name, reason, message string, change func(*bus.HostOrders)) (any, *intents.Invalid) {
	h, bad := m.known(name)
	if bad != nil {
		return nil, bad
	}
	change(&h.orders)
	m.commitHost(h)
	m.shutNow(h)
	m.sayHost(h, reason, bus.Event{Cause: "person", Message: message})
	m.touch(h)
	m.markHost(h)
	return m.hostRecord(h), nil
}

// known returns the host that a request names.
func (m *Model) known(name string) (*host, *intents.Invalid) {
	h := m.hosts[name]
	switch {
	case h == nil || h.id == "":
		return nil, notThere("host", name)
	case h.orders.Removed != nil:
		return nil, &intents.Invalid{Code: codeNotFound, Field: "host", Message: fmt.Sprintf(
			"host %s was removed at %s; uncordon welcomes it back", name, h.orders.Removed.Since.Format(time.RFC3339))}
	}
	return h, nil
}

// codeNotFound says that a request names something that is not there.
const codeNotFound = "NotFound"

// notThere answers a request that names a proxy, pool or host that is not there, or none.
func notThere(field, name string) *intents.Invalid {
	if name == "" {
		return &intents.Invalid{Code: intents.CodeMissing, Field: field, Message: "must not be empty"}
	}
	return &intents.Invalid{Code: codeNotFound, Field: field, Message: fmt.Sprintf("there is no %s %q", field, name)}
}

// ordered keeps since when something was asked for, however often it is.
func (m *Model) ordered(was *bus.Order, reason string) *bus.Order {
	o := bus.Order{Since: m.now, Reason: reason}
	if was != nil {
		o.Since = was.Since
		o.Reason = cmp.Or(reason, was.Reason)
	}
	return &o
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// shutNow closes a host before anything else is placed in this step.
func (m *Model) shutNow(h *host) {
	if why := m.closed(h); why != "" {
		h.offer.Closed = why
	}
}

// shut says why people keep new proxies from a host, or nothing when they do not.
func (m *Model) shut(h *host) string {
	o := &h.orders
	switch {
	case o.Drain != nil:
		return "it is being drained" + because(o.Drain.Reason)
	case m.maintained(h):
		return windowText(o.Maintenance)
	case o.Cordon != nil:
		return "cordoned" + because(o.Cordon.Reason)
	}
	return ""
}

func windowText(w *bus.Window) string {
	return "in maintenance until " + w.Until.Format(time.RFC3339) + because(w.Reason)
}

// maintained reports whether a host is within its maintenance window.
func (m *Model) maintained(h *host) bool {
	w := h.orders.Maintenance
	return w != nil && !m.now.Before(w.From) && m.now.Before(w.Until)
}

// tickOrders begins and ends maintenance windows.
func (m *Model) tickOrders(h *host) {
	w := h.orders.Maintenance
	if w == nil {
		return
	}
	if !m.now.Before(w.Until) {
		h.orders.Maintenance, h.maintained = nil, false
		if !h.reachable {
			h.silentAt = m.now // only now does it begin to count
		}
		m.commitHost(h)
		message := "the window is over"
		if why := m.shut(h); why != "" {
			message += "; it stays closed: " + why
		}
		m.sayHost(h, "MaintenanceEnded", bus.Event{Cause: "person", Message: message})
		m.touch(h)
		return
	}
	if m.maintained(h) && !h.maintained {
		h.maintained = true
		m.sayHost(h, "MaintenanceBegan", bus.Event{Cause: "person", Message: windowText(w) + "; its silence is no loss"})
		m.touch(h)
	}
}
