package libvirt

import (
	"testing"

	golibvirt "github.com/digitalocean/go-libvirt"
)

func TestEventsAreNamedForPeople(t *testing.T) {
	lifecycle := func(e golibvirt.DomainEventType) any {
		m := &golibvirt.DomainEventCallbackLifecycleMsg{}
		m.Msg.Event = int32(e)
		return m
	}
	away := &golibvirt.DomainEventCallbackLifecycleMsg{}
	away.Msg.Event, away.Msg.Detail = int32(golibvirt.DomainEventStopped), int32(golibvirt.DomainEventStoppedMigrated)
	for want, raw := range map[string]any{
		"Migrated":          away,
		"Started":           lifecycle(golibvirt.DomainEventStarted),
		"Stopped":           lifecycle(golibvirt.DomainEventStopped),
		"Crashed":           lifecycle(golibvirt.DomainEventCrashed),
		"Changed":           lifecycle(99),
		"AgentConnected":    &golibvirt.DomainEventCallbackAgentLifecycleMsg{State: 1},
		"AgentDisconnected": &golibvirt.DomainEventCallbackAgentLifecycleMsg{State: 2},
		"":                  &golibvirt.DomainEventCallbackMetadataChangeMsg{}, // wakes nobody
		"Unknown":           "something else",
	} {
		if _, got := translate(raw); got != want {
			t.Errorf("%#v: %q, want %q", raw, got, want)
		}
	}
}
