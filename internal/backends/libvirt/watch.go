package libvirt

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// Watch implements [backends.Watcher] with the events of libvirt: lifecycles, guest agents
// that come and go, changed metadata. It is the one thing here that reconnects by itself;
// after each connect it says that anything may have changed.
func (b *Backend) Watch(ctx context.Context) <-chan backends.Event {
	feed := &backends.Feed{}
	events := feed.Watch(ctx)
	go func() {
		wait := backoff.NewExponentialBackOff()
		wait.InitialInterval, wait.MaxInterval = 250*time.Millisecond, 15*time.Second
		for ctx.Err() == nil {
			began := time.Now()
			err := b.follow(ctx, feed)
			if ctx.Err() != nil {
				return
			}
			if time.Since(began) > time.Minute {
				wait.Reset()
			}
			b.log.WarnContext(ctx, "the event connection to libvirtd ended; it is made anew", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(wait.NextBackOff()):
			}
		}
	}()
	return events
}

// follow sends events until the connection is lost or ctx ends.
func (b *Backend) follow(ctx context.Context, feed *backends.Feed) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	var streams []<-chan any
	for _, id := range []golibvirt.DomainEventID{
		golibvirt.DomainEventIDLifecycle, golibvirt.DomainEventIDAgentLifecycle, golibvirt.DomainEventIDMetadataChange,
	} {
		stream, err := read(s, "watch domains", func(l *golibvirt.Libvirt) (<-chan any, error) { return l.SubscribeEvents(ctx, id, nil) })
		if err != nil {
			return err
		}
		// go-libvirt's goroutine blocks until its last event is taken.
		defer func() {
			go func() {
				for range stream {
				}
			}()
		}()
		streams = append(streams, stream)
	}
	b.marks.watch(1)
	defer b.marks.watch(-1)
	feed.Send(backends.Event{Reason: "Connected"})
	// A daemon that hangs, or a host that is gone without a word, sends no events either.
	alive := time.NewTicker(b.signOfLife)
	defer alive.Stop()
	for {
		var raw any
		open := true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C:
			if _, err := read(s, "watch domains", func(l *golibvirt.Libvirt) (uint64, error) { return l.ConnectGetLibVersion() }); err != nil {
				return err
			}
			continue
		case <-s.conn.lost:
			return backends.Errorf(backends.ErrTransient, "watch domains", "the connection to libvirtd broke")
		case raw, open = <-streams[0]:
		case raw, open = <-streams[1]:
		case raw, open = <-streams[2]:
		}
		if !open {
			return backends.Errorf(backends.ErrTransient, "watch domains", "the events of libvirtd ended")
		}
		dom, reason := translate(raw)
		if reason == "" {
			b.marks.forget(dom.UUID)
			continue
		}
		feed.Send(b.event(s, dom, reason))
	}
}

// Reasons of events that something is done about here.
const (
	eventMigrated = "Migrated" // stopped, for it runs on another host now
	eventStarted  = "Started"
)

// translate names what happened; an empty reason is a change of metadata, which wakes
// nobody.
func translate(raw any) (golibvirt.Domain, string) {
	switch e := raw.(type) {
	case *golibvirt.DomainEventCallbackLifecycleMsg:
		if golibvirt.DomainEventType(e.Msg.Event) == golibvirt.DomainEventStopped && golibvirt.DomainEventStoppedDetailType(e.Msg.Detail) == golibvirt.DomainEventStoppedMigrated {
			return e.Msg.Dom, eventMigrated
		}
		return e.Msg.Dom, lifecycle(golibvirt.DomainEventType(e.Msg.Event))
	case *golibvirt.DomainEventCallbackAgentLifecycleMsg:
		if e.State == 1 { // VIR_CONNECT_DOMAIN_EVENT_AGENT_LIFECYCLE_STATE_CONNECTED
			return e.Dom, "AgentConnected"
		}
		return e.Dom, "AgentDisconnected"
	case *golibvirt.DomainEventCallbackMetadataChangeMsg:
		return e.Dom, ""
	}
	return golibvirt.Domain{}, "Unknown"
}

func lifecycle(t golibvirt.DomainEventType) string {
	names := []string{"Defined", "Undefined", eventStarted, "Suspended", "Resumed", "Stopped", "Shutdown", "PMSuspended", "Crashed"}
	if int(t) < len(names) {
		return names[t]
	}
	return "Changed"
}

// event finds out whose domain an event is about. A domain that is gone already, or whose
// mark cannot be read, gives an event without a uid.
func (b *Backend) event(s *session, dom golibvirt.Domain, reason string) backends.Event {
	if reason == "Defined" {
		b.marks.forget(dom.UUID)
	}
	m, ours, err := b.mark(s, dom)
	if reason == "Undefined" {
		b.marks.forget(dom.UUID)
	}
	if err != nil || !ours {
		return backends.Event{Reason: reason}
	}
	switch reason {
	case eventMigrated:
		b.guests.left(m.UID, true)
	case eventStarted:
		b.guests.left(m.UID, false)
	}
	return backends.Event{UID: m.UID, Reason: reason}
}
