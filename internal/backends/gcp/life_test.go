package gcp

import (
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/gcp/gcpfake"
)

func (r *rig) spot() backends.Request {
	req := r.request()
	req.MachineType = "spot"
	return req
}

func TestASpotInstanceThatWasTakenAwayIsMadeAnew(t *testing.T) {
	r := newRig(t)
	req := r.spot()
	first, i := r.mustEnsure(req)
	r.s.Preempt(i.Zone, i.Name)
	got, err := r.b.Get(r.ctx(), req.Ref)
	if err != nil || got.Status != backends.StatusCrashed || got.Reason != "Preempted" || !strings.Contains(got.Message, "paid for") {
		t.Errorf("got %+v (%v), want Crashed, Preempted, and that it costs", got, err)
	}
	r.s.StockOut(i.Zone)
	again, now := r.mustEnsure(req)
	if now.Zone == i.Zone || again.Mark != first.Mark || again.Status != backends.StatusRunning {
		t.Errorf("got %+v in %s, want it running in another zone with the same mark", again, now.Zone)
	}
	r.mustDelete(req.Ref)
}

func TestASpotInstanceThatWasTakenAwayIsRemovedWhereThePolicySaysSo(t *testing.T) {
	for name, byGoogle := range map[string]bool{"stopped by Google": false, "deleted by Google": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.Preemption = "delete" })
			req := r.spot()
			_, i := r.mustEnsure(req)
			if byGoogle {
				r.s.Preempt(i.Zone, i.Name)
			} else {
				r.s.Terminate(i.Zone, i.Name)
			}
			for range 2 { // and for good, also after a restart
				_, err := r.ensure(req)
				r.expect(err, backends.ErrNoCapacity, "taken away", "not made again")
				r.b = r.open()
			}
			if len(r.s.Instances()) != 0 || len(r.s.Keys("disks")) != 0 {
				t.Errorf("still paid for: %v %v", r.s.Instances(), r.s.Keys("disks"))
			}
			r.expectZones("us-central1-a")
			r.mustDelete(req.Ref)
		})
	}
}

func TestASpotInstanceThatWasToStopIsStartedAsItIs(t *testing.T) {
	r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.Preemption = "delete" })
	req := r.spot()
	r.mustEnsure(req)
	req.Desired, req.Generation = backends.Stopped, 2
	if i, _ := r.mustEnsure(req); i.Status != backends.StatusStopped {
		t.Errorf("got %+v, want Stopped", i)
	}
	req.Desired, req.Generation = backends.Running, 3
	r.mustEnsure(req)
	r.expectZones("us-central1-a")
}

func TestAnOrdinaryInstanceThatHasEndedIsStarted(t *testing.T) {
	r := newRig(t)
	req := r.request()
	_, i := r.mustEnsure(req)
	r.s.Terminate(i.Zone, i.Name)
	if got, _ := r.b.Get(r.ctx(), req.Ref); got.Status != backends.StatusCrashed || got.Reason != "Terminated" {
		t.Errorf("got %+v, want Crashed, Terminated", got)
	}
	r.s.StockOut(i.Zone)
	_, err := r.ensure(req)
	r.expect(err, backends.ErrNoCapacity, "start instance", "ZONE_RESOURCE_POOL_EXHAUSTED")
	r.s.Restock(i.Zone)
	r.mustEnsure(req)
	r.expectZones("us-central1-a")
}

func TestWhatSomebodyHasSuspendedGoesOn(t *testing.T) {
	for _, desired := range []backends.Desired{backends.Running, backends.Stopped} {
		r := newRig(t)
		req := r.request()
		_, i := r.mustEnsure(req)
		done(t, r.s, "POST", "zones/"+i.Zone+"/instances/"+i.Name+"/suspend", nil)
		if got, _ := r.b.Get(r.ctx(), req.Ref); got.Status != backends.StatusPaused || got.Reason != "Suspended" || !strings.Contains(got.Message, "paid for") {
			t.Errorf("got %+v, want Paused, Suspended, and that it costs", got)
		}
		req.Desired, req.Generation = desired, 2
		r.mustEnsure(req)
		if want := map[backends.Desired]string{backends.Running: "RUNNING", backends.Stopped: "TERMINATED"}[desired]; r.mustHave(req.Ref).Status != want {
			t.Errorf("it is %s, want %s", r.mustHave(req.Ref).Status, want)
		}
	}
}

func TestWhatIsNextForAnInstance(t *testing.T) {
	run, stop := backends.Running, backends.Stopped
	for _, c := range []struct {
		desired backends.Desired
		status  string
		lost    bool
		want    action
	}{
		{run, "RUNNING", false, actNone}, {run, "TERMINATED", false, actStart}, {run, "TERMINATED", true, actReplace}, {run, "STOPPED", false, actStart},
		{run, "SUSPENDED", false, actResume}, {run, "SUSPENDED", true, actResume}, {run, "STOPPING", false, actWait}, {run, "PENDING_STOP", false, actWait},
		{run, "SUSPENDING", false, actWait}, {run, "PROVISIONING", false, actWait}, {run, "STAGING", false, actWait}, {run, "REPAIRING", false, actWait}, {run, "DEPROVISIONING", true, actWait},
		{stop, "RUNNING", false, actStop}, {stop, "TERMINATED", true, actNone}, {stop, "STOPPED", false, actNone}, {stop, "SUSPENDED", false, actResume}, {stop, "STOPPING", false, actWait},
	} {
		if got := nextAction(c.desired, c.status, c.lost); got != c.want {
			t.Errorf("%s while %s (lost %v): got %v, want %v", c.desired, c.status, c.lost, got, c.want)
		}
	}
}

func TestAZoneThatDoesNotAnswerIsUnknownAndNotGone(t *testing.T) {
	r := newRig(t)
	dark, fine := r.request(), r.request()
	fine.Zones = []string{"europe-west1-b"}
	_, i := r.mustEnsure(dark)
	r.mustEnsure(fine)
	r.b = r.open() // has seen nothing
	r.s.Unreachable(i.Zone, true)
	_, err := r.b.Get(r.ctx(), dark.Ref)
	r.expect(err, backends.ErrTransient, i.Zone+", which does not answer")
	l, err := r.b.List(r.ctx())
	if err != nil || len(l.Unread) != 1 || l.Unread[0].What != i.Zone || len(l.Instances) != 1 || len(l.Leftovers) != 0 {
		t.Errorf("got %+v (%v), want one instance, one unread zone and no leftovers", l, err)
	}
	_, err = r.ensure(dark)
	r.expect(err, backends.ErrTransient, "no other is made")
	r.expect(r.b.Delete(r.ctx(), dark.Ref), backends.ErrTransient, "did not answer", "left there")
	if err := r.b.Delete(r.ctx(), fine.Ref); err != nil {
		t.Errorf("what was never there cannot be deleted: %v", err)
	}
	// What is new goes elsewhere.
	if _, n := r.mustEnsure(r.request()); n.Zone != "us-central1-b" {
		t.Errorf("a new one is in %s", n.Zone)
	}
	r.s.Unreachable(i.Zone, false)
	r.mustEnsure(dark)
	r.expectZones("us-central1-a", "europe-west1-b", "us-central1-b")
	r.mustDelete(dark.Ref)
}

func TestADeletionWithoutARecordWantsEveryZoneToAnswer(t *testing.T) {
	r := newRig(t)
	r.s.Unreachable("europe-west1-b", true)
	r.expect(r.b.Delete(r.ctx(), r.request().Ref), backends.ErrTransient, "europe-west1-b did not answer")
}

func TestLabelsThatSomebodyChangedMeanwhileAreNotOverwritten(t *testing.T) {
	r := newRig(t)
	req := r.request()
	_, i := r.mustEnsure(req)
	key := "projects/" + i.Project + "/zones/" + i.Zone + "/instances/" + i.Name
	change := func(label string) {
		r.s.Edit(key, func(doc map[string]any) { doc["labels"].(map[string]any)[label] = "x" })
	}
	r.s.OnRequest(func(q gcpfake.Request) gcpfake.Action {
		if q.Method == "compute.instances.setLabels" {
			return gcpfake.Action{Before: func() { change("theirs") }}
		}
		return gcpfake.Action{}
	})
	req.Generation = 2
	_, err := r.ensure(req)
	r.expect(err, backends.ErrTransient, "HTTP 412", "changed it meanwhile")
	r.s.OnRequest(nil)
	if _, i = r.mustEnsure(req); i.Labels["theirs"] != "x" || i.Labels[labelGeneration] != "2" {
		t.Errorf("labels are %v", i.Labels)
	}
}

func TestAnInstanceThatIsProtectedIsKept(t *testing.T) {
	r := newRig(t)
	req := r.request()
	_, i := r.mustEnsure(req)
	key := "projects/" + i.Project + "/zones/" + i.Zone + "/instances/" + i.Name
	r.s.Edit(key, func(doc map[string]any) { doc["deletionProtection"] = true })
	r.expect(r.b.Delete(r.ctx(), req.Ref), backends.ErrConflict, "protected against deletion")
	r.mustHave(req.Ref)
	r.s.Edit(key, func(doc map[string]any) { doc["deletionProtection"] = false })
	r.mustDelete(req.Ref)
}

func TestOfTwoInstancesOfOneUIDOneIsKept(t *testing.T) {
	r := newRig(t)
	req := r.request()
	_, first := r.mustEnsure(req)
	m, _ := readLabels(first.Labels, r.owner)
	plantIn("us-central1-b", "instances")(t, r.host, req.Ref, m)
	if _, i := r.mustEnsure(req); i.Zone != first.Zone {
		t.Errorf("the younger one was kept")
	}
	plantIn("us-central1-b", "instances")(t, r.host, req.Ref, m)
	r.mustDelete(req.Ref)
}

func TestAPreemptionIsNoticed(t *testing.T) {
	r := newRig(t)
	req := r.spot()
	_, i := r.mustEnsure(req)
	events := r.b.Watch(r.ctx())
	for e := range events {
		if e.Reason == "Connected" {
			break
		}
	}
	r.s.Preempt(i.Zone, i.Name)
	select {
	case e := <-events:
		if e.UID != req.UID || e.Reason != "Status:TERMINATED" {
			t.Errorf("got %+v, want the status of %s", e, req.UID)
		}
	case <-time.After(10 * time.Second):
		t.Error("nobody told")
	}
}
