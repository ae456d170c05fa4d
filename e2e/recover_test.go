//go:build real

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// TestAFleetIsRestoredFromABackup loses every stream, restores what `nats stream backup` kept
// of them some decisions ago, and recovers. What runs goes on running, under its uid.
func TestAFleetIsRestoredFromABackup(t *testing.T) {
	f := newFleet(t, "")
	f.startAgent("sim-1", simAgent)
	for _, name := range []string{"kept", "deleted"} {
		f.publish(name, intentOf(name))
		f.awaitPhase(name, bus.PhaseRunning, 60*time.Second)
	}
	kept, _, _ := f.record("kept")

	names := []string{f.names.Intents(), f.names.Assignments(), f.names.States(), f.names.Events(), f.names.LeaseStream()}
	for _, stream := range names {
		f.must("stream", "backup", stream, filepath.Join(f.dir, "backup", stream), "--no-progress")
	}
	// What comes after the copy is forgotten by it.
	f.publish("deleted", `{"name":"deleted","desired":"absent"}`)
	f.awaitNoTrace("deleted", 60*time.Second)
	f.publish("newer", intentOf("newer"))
	newer := f.awaitPhase("newer", bus.PhaseRunning, 60*time.Second)

	f.coordinator.stop()
	for _, stream := range names {
		f.must("stream", "rm", "-f", stream)
	}
	for _, bucket := range []string{f.names.Proxies(), f.names.Hosts(), f.names.Endpoints()} {
		f.must("kv", "rm", "-f", bucket)
	}
	for _, stream := range names {
		f.must("stream", "restore", filepath.Join(f.dir, "backup", stream), "--no-progress")
	}
	f.startCoordinator()

	// It is noticed, and stands in the host's record.
	eventually(t, 60*time.Second, func() error {
		var h bus.HostRecord
		if _, err := f.get(f.names.Hosts(), "sim-1", &h); err != nil {
			return err
		}
		for _, c := range h.Conditions {
			if c.Type == "Frozen" && c.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("nothing is frozen: %+v", h.Conditions)
	})
	f.api("recover", `{"reason":"restored"}`)

	after := f.awaitPhase("kept", bus.PhaseRunning, 60*time.Second)
	if after.UID != kept.UID {
		t.Errorf("what ran has uid %s now, it had %s", after.UID, kept.UID)
	}
	// Its intent is not in the copy: published again it finds what runs.
	f.publish("newer", intentOf("newer"))
	if again := f.awaitPhase("newer", bus.PhaseRunning, 60*time.Second); again.UID != newer.UID {
		t.Errorf("what ran has uid %s now, it had %s", again.UID, newer.UID)
	}
	// Its host remembers that it was to go, and says so.
	f.awaitPhase("deleted", bus.PhaseGone, 60*time.Second)
	f.publish("deleted", `{"name":"deleted","desired":"absent"}`)
	f.awaitNoTrace("deleted", 60*time.Second)
	// And all is as before.
	f.publish("kept", `{"name":"kept","desired":"absent"}`)
	f.awaitNoTrace("kept", 60*time.Second)
}

func intentOf(name string) string {
	return fmt.Sprintf(`{"name":%q,"spec":{"allowFrom":["10.0.0.0/8"]}}`, name)
}

// must runs the nats CLI, which must succeed.
func (f *fleet) must(args ...string) {
	f.t.Helper()
	if out, err := f.nats(args...); err != nil {
		f.t.Fatalf("nats %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// api asks the coordinator, which must not refuse.
func (f *fleet) api(verb, doc string) json.RawMessage {
	f.t.Helper()
	var out json.RawMessage
	eventually(f.t, 20*time.Second, func() error {
		m, err := f.js.Conn().Request(f.names.API()+"."+verb, []byte(doc), 5*time.Second)
		if err != nil {
			return err
		}
		if code := m.Header.Get("Nats-Service-Error-Code"); code != "" {
			return fmt.Errorf("%s %s: %s %s", verb, doc, code, m.Header.Get("Nats-Service-Error"))
		}
		out = m.Data
		return nil
	})
	return out
}
