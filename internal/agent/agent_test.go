package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func TestAnAssignmentBecomesARunningProxyInOneState(t *testing.T) {
	r := newRig(t)
	r.host("an offer", func(h bus.Host) bool { return h.Offer.Capacity.Slots != 0 })
	a := r.assignment("p1", "")
	r.assign(a)
	s := r.phase(a, bus.PhaseRunning)
	if len(s.Addresses) != 1 || s.Addresses[0].Port == 0 || s.Addresses[0].Family != "ipv4" {
		t.Errorf("addresses: got %v, want one of IPv4 with a port", s.Addresses)
	}
	if s.HostID != r.agent.HostID() || s.Session != 1 {
		t.Errorf("state is of host id %s, session %d", s.HostID, s.Session)
	}
}

func TestDesiredChangesInPlace(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	a.Generation, a.Desired = 2, bus.DesiredStopped
	r.assign(a)
	if s := r.phase(a, bus.PhaseStopped); len(s.Addresses) != 0 {
		t.Errorf("a stopped proxy has addresses %v", s.Addresses)
	}
	a.Generation, a.Desired = 3, bus.DesiredRunning
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
}

func TestATombstoneLeavesNothing(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	dead := tombstone(a)
	r.assign(dead)
	r.phase(dead, bus.PhaseGone)
	r.gone(a)
	bustest.Eventually(t, "forgotten", func() error {
		if _, held, _, was := r.agent.record.known(a.UID); held || !was {
			return os.ErrExist
		}
		return nil
	})
}

func TestATombstoneEndsASlowCreate(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "#sim slow=1h steps=2")
	r.assign(a)
	s := r.state(a, "a step", func(s bus.State) bool { return s.Phase == bus.PhaseProvisioning && s.Step != "" })
	if s.Percent != 50 {
		t.Errorf("percent: got %d, want 50", s.Percent)
	}
	dead := tombstone(a)
	r.assign(dead)
	r.phase(dead, bus.PhaseGone)
	r.gone(a)
}

func TestANewerAssignmentEndsASlowCreate(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "#sim slow=1h")
	r.assign(a)
	r.phase(a, bus.PhaseProvisioning)
	a.Generation, a.Spec.CloudInit = 2, ""
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
}

func TestProgressComesAtABoundedPace(t *testing.T) {
	r := newRig(t)
	r.states.CaughtUp()
	a := r.assignment("p1", "#sim slow=1s steps=500")
	began := time.Now()
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	took := time.Since(began) // a busy machine takes longer than the second
	if n := r.agent.out.counter; float64(n) > 6+10*took.Seconds() {
		t.Errorf("%d documents for %v of progress", n, took)
	}
}

func TestWhatVanishesOrCrashesIsMadeAgain(t *testing.T) {
	for name, happen := range map[string]func(*rig, string) error{
		"vanished": func(r *rig, uid string) error { return r.world.Vanish(uid) },
		"crashed":  func(r *rig, uid string) error { return r.world.Crash(uid) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			a := r.assignment("p1", "")
			r.assign(a)
			first := r.phase(a, bus.PhaseRunning)
			if err := happen(r, a.UID); err != nil {
				t.Fatal(err)
			}
			r.state(a, "running again", func(s bus.State) bool { return s.Phase == bus.PhaseRunning && s.Counter > first.Counter })
			if i, err := r.there(a); err != nil || i.Status != "Running" {
				t.Errorf("instance: got %v, %v, want it running", i.Status, err)
			}
		})
	}
}

func TestErrorsDecideThePhase(t *testing.T) {
	for class, want := range map[string]bus.Phase{
		"Permanent": bus.PhaseFailed, "Conflict": bus.PhaseFailed, "NoCapacity": bus.PhaseFailed,
		"Transient": bus.PhaseProvisioning, "HostFault": bus.PhaseProvisioning, "NotFound": bus.PhaseProvisioning,
	} {
		t.Run(class, func(t *testing.T) {
			r := newRig(t)
			a := r.assignment("p1", "#sim ensure-error="+class+" times=20")
			r.assign(a)
			code := class
			if class == "NotFound" {
				code = "Transient" // inside a create it means that something vanished under us
			}
			seen := false
			for !seen {
				m := r.states.Next()
				s, err := bus.Decode[bus.State](m.Data)
				if err != nil {
					t.Fatal(err)
				}
				seen = s.UID == a.UID && s.Error != nil
				if seen && (s.Phase != want || s.Error.Code != code || s.Error.Message == "") {
					t.Errorf("got %s with %+v, want %s with code %s", s.Phase, s.Error, want, code)
				}
			}
			r.phase(a, bus.PhaseRunning)
		})
	}
}

func TestAKilledAgentGoesOn(t *testing.T) {
	r := newRig(t)
	a, slow := r.assignment("p1", ""), r.assignment("p2", "#sim slow=300ms")
	r.assign(a, slow)
	r.phase(a, bus.PhaseRunning)
	r.phase(slow, bus.PhaseProvisioning)
	r.kill()
	r.start()
	r.state(a, "running in session 2", func(s bus.State) bool { return s.Phase == bus.PhaseRunning && s.Session == 2 })
	r.state(slow, "running in session 2", func(s bus.State) bool { return s.Phase == bus.PhaseRunning && s.Session == 2 })
}

func TestAnAgentWithoutNATSRepairsWhatIsRecorded(t *testing.T) {
	r := newRig(t)
	a, b := r.assignment("p1", ""), r.assignment("p2", "")
	r.assign(a, b)
	r.phase(a, bus.PhaseRunning)
	r.phase(b, bus.PhaseRunning)
	dead := tombstone(b)
	r.kill()
	r.assign(dead) // while nobody listens
	r.server.Stop()
	if err := r.world.Vanish(a.UID); err != nil {
		t.Fatal(err)
	}
	r.start()
	bustest.Eventually(t, "made again", func() error { _, err := r.there(a); return err })
	if _, err := r.there(b); err != nil {
		t.Errorf("the other instance: %v", err)
	}
	r.server.Restart()
	r.unpin()
	r.state(a, "running in session 2", func(s bus.State) bool { return s.Phase == bus.PhaseRunning && s.Session == 2 })
	r.phase(dead, bus.PhaseGone)
	r.gone(b)
}

func TestALostRecordIsAskedForAndDeletesNothing(t *testing.T) {
	r := newRig(t)
	a, b := r.assignment("p1", ""), r.assignment("p2", "")
	r.assign(a, b)
	r.phase(a, bus.PhaseRunning)
	r.phase(b, bus.PhaseRunning)
	r.kill()
	if err := os.Remove(filepath.Join(r.cfg.StateDir, recordFile)); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.unpin()
	r.beat("resync", func(b bus.Beat) bool { return b.Resync && b.Session == 2 })
	r.host("both unclaimed", func(h bus.Host) bool { return len(h.Unclaimed) == 2 && h.Unclaimed[0].Kind == "instance" })
	if err := r.fleet.ResyncHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.state(a, "running in session 2", func(s bus.State) bool { return s.Phase == bus.PhaseRunning && s.Session == 2 })
	r.state(b, "running in session 2", func(s bus.State) bool { return s.Phase == bus.PhaseRunning && s.Session == 2 })
	r.beat("the end of the resync", func(b bus.Beat) bool { return !b.Resync })
	if _, err := r.there(a); err != nil {
		t.Error(err)
	}
}

func TestALostRecordOfNothingIsCompleteOnceTheConsumerBeginsAnew(t *testing.T) {
	r := newRig(t)
	assignments := bustest.Follow(t, r.fleet, r.fleet.Names().Assignments(), "")
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	dead := tombstone(a)
	r.assign(dead)
	r.phase(dead, bus.PhaseGone)
	containing := func(text string) func(bus.Msg) error {
		return func(m bus.Msg) error {
			if !strings.Contains(string(m.Data), text) {
				return fmt.Errorf("no %s in %s", text, m.Data)
			}
			return nil
		}
	}
	stone := assignments.Newest(r.fleet.Names().Assign(host, a.Proxy, a.UID), containing("absent"))
	r.states.Newest(r.fleet.Names().StateProxy(host, a.Proxy, a.UID), containing("Gone"))
	// Removed by its sequence, so that the consumer has nothing to deliver at all.
	_, js := r.server.Connect("test")
	stream, err := js.Stream(bustest.Context(t), r.fleet.Names().Assignments())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(bustest.Context(t), stone.Seq); err != nil {
		t.Fatal(err)
	}
	r.kill()
	if err := os.Remove(filepath.Join(r.cfg.StateDir, recordFile)); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.beat("resync", func(b bus.Beat) bool { return b.Resync && b.Session == 2 })
	if err := r.fleet.ResyncHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.beat("the end of the resync", func(b bus.Beat) bool { return !b.Resync })
}

func TestARedeliveredAssignmentIsAnsweredAgain(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	before := r.phase(a, bus.PhaseRunning)
	if err := r.fleet.ResyncHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	r.state(a, "said again", func(s bus.State) bool { return s.Phase == bus.PhaseRunning && s.Counter > before.Counter })
}

func TestAssignmentsOfOthersAreRefusedAloud(t *testing.T) {
	r := newRig(t)
	otherHost, otherFleet := r.assignment("p1", ""), r.assignment("p2", "")
	otherHost.HostID = newUID()
	otherFleet.Installation = newUID()
	own := r.assignment("p3", "")
	r.assign(otherHost, otherFleet, own)
	r.phase(own, bus.PhaseRunning)
	r.host("a check", func(h bus.Host) bool {
		for _, c := range h.Checks {
			if c.Target == targetAssignments && c.Code == codeForeign {
				return true
			}
		}
		return false
	})
	r.gone(otherHost)
	r.gone(otherFleet)
}

func TestAnUnclaimedInstanceIsReportedAndGoesByTombstoneOnly(t *testing.T) {
	r := newRig(t)
	a := r.assignment("p1", "")
	r.assign(a)
	r.phase(a, bus.PhaseRunning)
	dead := tombstone(a)
	// The record forgets it, as after a restored backup.
	e, _, _, _ := r.agent.record.known(a.UID)
	r.kill()
	raw, _, err := openRecord(r.cfg.StateDir, r.agent.HostID())
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.retire(e, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := raw.close(); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.unpin()
	r.host("it unclaimed", func(h bus.Host) bool { return len(h.Unclaimed) == 1 && h.Unclaimed[0].UID == a.UID })
	if _, err := r.there(a); err != nil {
		t.Fatalf("the unclaimed instance: %v", err)
	}
	r.assign(dead)
	r.phase(dead, bus.PhaseGone)
	r.gone(a)
}
