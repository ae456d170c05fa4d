package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func TestTheFirstContactComesBeforeTheBackend(t *testing.T) {
	r := bareRig(t)
	r.start() // there is not even a stream
	time.Sleep(100 * time.Millisecond)
	if got := r.agent.id.get().Installation; got != "" {
		t.Fatalf("pinned %q with nobody there", got)
	}
	r.connectLeader()
	h := r.host("an empty offer", func(h bus.Host) bool { return h.Offer.Capacity == bus.Capacity{} })
	if h.HostID != r.agent.HostID() || h.Zone != "z" || h.Backend != "sim" {
		t.Errorf("the first host document is %+v", h)
	}
	if err := r.fleet.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.host("an offer", func(h bus.Host) bool { return h.Offer.Capacity.Slots != 0 && len(h.InPlace) > 0 })
	if got := r.agent.id.get(); got.Installation != r.fleet.Installation().ID || got.Incarnation != r.fleet.Installation().Incarnation {
		t.Errorf("pinned %+v, want %+v", got, r.fleet.Installation())
	}
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
}

func TestAnotherInstallationStopsTheAgent(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	if err := r.agent.end(); err != nil {
		t.Fatal(err)
	}
	other := bareRig(t)
	other.connectLeader()
	if err := other.fleet.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.cfg.NATS.URL = other.server.URL()
	r.start()
	select {
	case err := <-r.agent.done:
		if !errors.Is(err, ErrOtherInstallation) || !strings.Contains(err.Error(), other.fleet.Installation().ID) {
			t.Errorf("got %v, want a word that names both installations", err)
		}
	case <-time.After(bustest.Deadline):
		t.Fatal("the agent works for another installation")
	}
	if _, err := r.there(a); err != nil {
		t.Errorf("the instance: %v", err)
	}
}

func TestStreamsMadeAnewAreNotTakenFromUntilThatIsAccepted(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	r.loseStreams()
	if err := r.fleet.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.start()
	dead := tombstone(a)
	dead.Incarnation = r.fleet.Installation().Incarnation
	r.assign(dead)
	r.host("a check", func(h bus.Host) bool {
		for _, c := range h.Checks {
			if c.Code == codeIncarnation && strings.Contains(c.Message, dead.Incarnation) {
				return true
			}
		}
		return false
	})
	r.beat("the old incarnation", func(b bus.Beat) bool { return b.Incarnation == a.Incarnation })
	if r.agent.Health() == nil {
		t.Error("a host that takes nothing is healthy")
	}
	// What runs is repaired all the same.
	if err := r.world.Vanish(a.UID); err != nil {
		t.Fatal(err)
	}
	bustest.Eventually(t, "made again", func() error { _, err := r.there(a); return err })

	if err := r.agent.end(); err != nil {
		t.Fatal(err)
	}
	if err := AcceptStreams(r.cfg.StateDir, dead.Incarnation); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.unpin()
	r.phase(dead, bus.PhaseGone)
	r.gone(a)
}

func TestAServerThatRestartsInterruptsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		desire bus.Desired
		at     bus.Phase // where the server goes away
		then   bus.Phase // what is stored once it is back
	}{
		"while a proxy is made":    {"#sim slow=1s", bus.DesiredRunning, bus.PhaseProvisioning, bus.PhaseRunning},
		"while a proxy runs":       {"", bus.DesiredRunning, bus.PhaseRunning, bus.PhaseRunning},
		"while a proxy is stopped": {"", bus.DesiredStopped, bus.PhaseStopped, bus.PhaseStopped},
		"while a proxy cannot be":  {"#sim ensure-error=Permanent", bus.DesiredRunning, bus.PhaseFailed, bus.PhaseFailed},
		"while a proxy is deleted": {"#sim slow-delete=1s", bus.DesiredAbsent, bus.PhaseDeleting, bus.PhaseGone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait for a reconnect
			r := newRig(t)
			a := r.assignment("p1", c.script)
			if c.desire == bus.DesiredAbsent {
				r.assign(a)
				r.phase(a, bus.PhaseRunning)
				a = tombstone(a)
			}
			a.Desired = c.desire
			r.assign(a)
			before := r.phase(a, c.at)
			r.server.Restart()
			r.state(a, string(c.then)+" said again", func(s bus.State) bool { return s.Phase == c.then && s.Counter > before.Counter })
			if c.desire == bus.DesiredAbsent {
				r.gone(a)
				return
			}
			// And what comes next is taken.
			dead := tombstone(a)
			r.leader = bustest.Lead(t, r.fleet, "again")
			r.assign(dead)
			r.phase(dead, bus.PhaseGone)
		})
	}
}

func TestABeatTellsWhatTheStatesSay(t *testing.T) {
	r := newRig(t)
	a, b := r.assignment("p1", ""), r.assignment("p2", "")
	r.assign(a, b)
	want := bus.Digest([]bus.State{r.phase(a, bus.PhaseRunning), r.phase(b, bus.PhaseRunning)})
	r.beat("the digest of both", func(b bus.Beat) bool { return b.Digest == want && b.Seq > 0 && b.HostID == r.agent.HostID() })
	dead := tombstone(a)
	r.assign(dead)
	r.phase(dead, bus.PhaseGone)
	want = bus.Digest([]bus.State{r.phase(b, bus.PhaseRunning)})
	r.beat("the digest of the other", func(b bus.Beat) bool { return b.Digest == want })
}

func TestABeatTellsThatTheConsumerIsGone(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	_, js := r.server.Connect("operator")
	names := r.fleet.Names()
	if err := js.DeleteConsumer(bustest.Context(t), names.Assignments(), names.Consumer(host)); err != nil {
		t.Fatal(err)
	}
	r.beat("the consumer missing", func(b bus.Beat) bool { return b.NoConsumer })
	if err := r.fleet.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.beat("the consumer there", func(b bus.Beat) bool { return !b.NoConsumer })
}

func TestABackendThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	r := bareRig(t)
	r.connectLeader()
	if err := r.fleet.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.broken.Store(true)
	r.start()
	r.host("a check", func(h bus.Host) bool { return len(h.Checks) == 1 && h.Checks[0].Target == targetBackend })
	a := r.assignment("p1", "")
	r.assign(a) // is recorded meanwhile
	bustest.Eventually(t, "recorded", func() error {
		if _, held, _, _ := r.agent.record.known(a.UID); !held {
			return errors.New("not yet")
		}
		return nil
	})
	r.broken.Store(false)
	r.phase(a, bus.PhaseRunning)
	r.host("no such check", func(h bus.Host) bool { return len(h.Checks) == 0 || h.Checks[0].Target != targetBackend })
}
