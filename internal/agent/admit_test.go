package agent

import (
	"errors"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func (r *rig) admit(as bus.Admission) {
	r.t.Helper()
	if err := r.fleet.AdmitHost(bustest.Context(r.t), host, as); err != nil {
		r.t.Fatal(err)
	}
}

func TestAHostThatIsRefusedLeavesTheAssignmentsToTheOther(t *testing.T) {
	r := bareRig(t)
	r.connectLeader()
	r.admit(bus.Admission{HostID: "other-id", Word: "the name belongs to host id other-id"})
	r.start()
	a := r.assignment("p1", "")
	r.assign(a)
	bustest.Eventually(t, "the word", func() error {
		if err := r.agent.Health(); err == nil || !strings.Contains(err.Error(), "other-id") {
			return errors.New("it does not say that it is refused")
		}
		return nil
	})
	time.Sleep(200 * time.Millisecond)
	if pulls, err := r.fleet.HostPulls(bustest.Context(t), host); err != nil || pulls {
		t.Fatalf("it pulls from the other's consumer: %v, %v", pulls, err)
	}
	r.states.Quiet(0) // it is not for it to say who the host of the name is
	// The other one is silent, and this one is asked who it is.
	r.admit(bus.Admission{HostID: "other-id", Word: "the name belongs to host id other-id", Asked: r.agent.HostID(), Ask: "1"})
	r.host("its own document", func(h bus.Host) bool { return h.HostID == r.agent.HostID() })
	if pulls, err := r.fleet.HostPulls(bustest.Context(t), host); err != nil || pulls {
		t.Fatalf("it pulls from the other's consumer: %v, %v", pulls, err)
	}
	// The other one is gone, and this one is admitted.
	r.admit(bus.Admission{HostID: r.agent.HostID()})
	r.phase(a, bus.PhaseRunning)
	if err := r.agent.Health(); err != nil {
		t.Error(err)
	}
}

func TestAHostThatIsAskedSaysEverythingAgain(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	was := r.phase(a, bus.PhaseRunning)
	_, js := r.server.Connect("another agent")
	n := r.fleet.Names()
	for subject, doc := range map[string]any{n.StateHost(host): bus.Host{HostID: "other-id"}, n.StateProxy(host, a.Proxy, a.UID): bus.State{HostID: "other-id"}} {
		if _, err := js.Publish(bustest.Context(t), subject, bus.Encode(doc)); err != nil {
			t.Fatal(err)
		}
	}
	r.admit(bus.Admission{HostID: r.agent.HostID(), Asked: r.agent.HostID(), Ask: "1"})
	r.host("its own document", func(h bus.Host) bool { return h.HostID == r.agent.HostID() })
	if now := r.phase(a, bus.PhaseRunning); now.Counter <= was.Counter {
		t.Errorf("got counter %d, want more than %d: it would be dropped as old", now.Counter, was.Counter)
	}
}

func TestAHostThatWasReplacedStopsPulling(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	r.admit(bus.Admission{HostID: "other-id", Word: "the name belongs to host id other-id"})
	r.server.Restart() // as after any reconnect
	bustest.Eventually(t, "the word", func() error {
		if r.agent.Health() == nil {
			return errors.New("it does not say that it is refused")
		}
		return nil
	})
	if _, err := r.there(a); err != nil {
		t.Errorf("what it runs: %v", err)
	}
}

func TestARecoveryTakesAlongAHostOfStreamsThatWereLost(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	was := r.phase(a, bus.PhaseRunning)
	r.loseStreams()
	r.admit(bus.Admission{})
	r.start()
	// It says what it has, and of which streams it knows that.
	r.host("the old incarnation", func(h bus.Host) bool { return h.Incarnation == a.Incarnation })
	r.state(a, "what it runs", func(s bus.State) bool { return s.Phase == bus.PhaseRunning && s.Session > was.Session })
	dead := tombstone(a)
	dead.Incarnation, dead.Recovery = r.fleet.Installation().Incarnation, "r1"
	r.assign(dead)
	time.Sleep(300 * time.Millisecond)
	if _, err := r.there(a); err != nil {
		t.Fatalf("it was deleted before anybody recovered the fleet: %v", err)
	}
	r.admit(bus.Admission{Recovery: "r1", Recovers: a.Incarnation + "," + dead.Incarnation})
	r.phase(dead, bus.PhaseGone)
	r.beat("the recovery", func(b bus.Beat) bool { return b.Recovery == "r1" && b.Incarnation == dead.Incarnation })
}

func TestARecoveryMakesAHostForgetTheSequencesOfBefore(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	// A copy from before was restored: the host has seen more than the stream ever had.
	if err := r.agent.record.put([]entry{{Assignment: a, Seq: 1000}}, 1000); err != nil {
		t.Fatal(err)
	}
	dead := tombstone(a)
	dead.Recovery = "r1"
	r.assign(dead)
	time.Sleep(300 * time.Millisecond) // it is not acked as something old
	if _, err := r.there(a); err != nil {
		t.Fatal(err)
	}
	r.admit(bus.Admission{HostID: r.agent.HostID(), Recovery: "r1", Recovers: a.Incarnation})
	r.phase(dead, bus.PhaseGone)
	r.gone(a)
}
