package gcp

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/gcp/gcpfake"
)

func TestAZoneWithoutStockMakesTheNextOneBeTried(t *testing.T) {
	r := newRig(t)
	r.s.StockOut("us-central1-a")
	req := r.request()
	_, i := r.mustEnsure(req)
	if i.Zone != "us-central1-b" {
		t.Errorf("it is in %s", i.Zone)
	}
	r.expectZones("us-central1-a", "us-central1-b")
	if _, ids := r.inserts(); ids[0] == ids[1] {
		t.Error("two attempts had one requestId")
	}
	r.mustDelete(req.Ref)
}

func TestTheZonesThatHaveRoomAreTriedFirst(t *testing.T) {
	r := newRig(t)
	r.s.StockOut("us-central1-a", "europe-west1-b")
	_, i := r.mustEnsure(r.request())
	if i.Zone != "europe-west1-b" {
		t.Errorf("it is in %s, though Google named europe-west1-b", i.Zone)
	}
	r.expectZones("us-central1-a", "europe-west1-b")
}

func TestWithoutStockAnywhereEachZoneSaysWhy(t *testing.T) {
	r := newRig(t)
	for _, z := range r.conf.Zones {
		r.s.StockOut(z, "asia-east1-a")
	}
	req := r.request()
	_, err := r.ensure(req)
	r.expect(err, backends.ErrNoCapacity, "us-central1-a (", "us-central1-b (", "europe-west1-b (", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: ", "[room in asia-east1-a]")
	if got, err := r.b.Get(r.ctx(), req.Ref); backends.Class(err) != backends.ErrNotFound {
		t.Errorf("got %+v (%v), want NotFound", got, err)
	}
	r.s.Restock("us-central1-b")
	_, i := r.mustEnsure(req)
	if _, ids := r.inserts(); i.Zone != "us-central1-b" || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		t.Errorf("it is in %s; requestIds %v, want a new one for each attempt", i.Zone, ids)
	}
	r.mustDelete(req.Ref)
}

func TestIntentsNameZonesAndRegions(t *testing.T) {
	r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.Zones = []string{"us-central1", "europe-west1-b"} })
	req := r.request()
	req.Zones = []string{"europe-west1", "us-central1-b"}
	r.s.StockOut("europe-west1-b")
	if _, i := r.mustEnsure(req); i.Zone != "us-central1-b" {
		t.Errorf("it is in %s", i.Zone)
	}
	r.expectZones("europe-west1-b", "us-central1-b")
	req = r.request()
	req.Zones = []string{"asia-east1"}
	_, err := r.ensure(req)
	r.expect(err, backends.ErrPermanent, "none of asia-east1 is this host's", "europe-west1-b")
}

// Each error that an operation can end with, and each that an insert can be refused with, has its
// class, its raw code and its text, and whether the next zone is tried.
func TestWhyAnInstanceIsNotMade(t *testing.T) {
	const image = "projects/ubuntu-os-cloud/global/images/ubuntu-2404-noble-amd64-v20261101"
	for name, c := range map[string]struct {
		fail    *gcpfake.OperationError
		refuse  *gcpfake.Error
		class   error
		texts   []string
		inserts []string
	}{
		"a quota that is used up meanwhile": {fail: gcpfake.QuotaExceeded("CPUS", "us-central1", 24), class: backends.ErrNoCapacity,
			texts: []string{"QUOTA_EXCEEDED: Quota 'CPUS' exceeded.  Limit: 24.0 in region us-central1.", "raise the quota"}, inserts: []string{"us-central1-a", "europe-west1-b"}},
		"an image that vanished": {fail: gcpfake.ImageGone(image), class: backends.ErrPermanent,
			texts: []string{"RESOURCE_NOT_FOUND: ", image, "see image ubuntu in the agent's configuration"}, inserts: []string{"us-central1-a"}},
		"too much from one image": {fail: gcpfake.OperationRateExceeded(image), class: backends.ErrTransient,
			texts: []string{"RESOURCE_OPERATION_RATE_EXCEEDED: ", "rate quota"}, inserts: []string{"us-central1-a"}},
		"a right that was missing in the end": {fail: gcpfake.PermissionsError("compute.images.useReadOnly", image), class: backends.ErrHostFault,
			texts: []string{"PERMISSIONS_ERROR: Required 'compute.images.useReadOnly' permission", "grant the permission"}, inserts: []string{"us-central1-a"}},
		"trouble of Google's own": {fail: gcpfake.InternalError(), class: backends.ErrTransient, texts: []string{"INTERNAL_ERROR: "}, inserts: []string{"us-central1-a"}},
		"a subnetwork that is full": {fail: &gcpfake.OperationError{Code: "IP_SPACE_EXHAUSTED", HTTP: 403, Message: "IP space of 'default' is exhausted."}, class: backends.ErrNoCapacity,
			texts: []string{"IP_SPACE_EXHAUSTED: ", "larger range"}, inserts: []string{"us-central1-a", "europe-west1-b"}},
		"too many requests":             {refuse: gcpfake.RateLimited("Queries"), class: backends.ErrTransient, texts: []string{"rateLimitExceeded", "too many requests"}, inserts: []string{"us-central1-a"}},
		"too many requests, as a 429":   {refuse: gcpfake.TooManyRequests(3), class: backends.ErrTransient, texts: []string{"HTTP 429"}, inserts: []string{"us-central1-a"}},
		"an API that is off":            {refuse: gcpfake.ServiceDisabled(), class: backends.ErrHostFault, texts: []string{"SERVICE_DISABLED", "switch the Compute Engine API"}, inserts: []string{"us-central1-a"}},
		"trouble of Google's front end": {refuse: gcpfake.BadGateway(), class: backends.ErrTransient, texts: []string{"HTTP 502", "found out by asking again"}, inserts: []string{"us-central1-a"}},
		"an organisation's policy": {refuse: &gcpfake.Error{Code: 412, Reason: "conditionNotMet", Message: "Constraint constraints/compute.vmExternalIpAccess violated for project fleet-test."},
			class: backends.ErrHostFault, texts: []string{"constraints/compute.vmExternalIpAccess", "organisation policy"}, inserts: []string{"us-central1-a"}},
		"a machine type that no zone has": {refuse: &gcpfake.Error{Code: 400, Reason: "invalid", Message: "Invalid value for field 'resource.machineType': 'e2-small'. Machine type does not exist in zone."},
			class: backends.ErrPermanent, texts: []string{"not to be had"}, inserts: []string{"us-central1-a", "us-central1-b", "europe-west1-b"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if c.fail != nil {
				r.s.SetFate(gcpfake.Fate{Method: insertMethod, Fail: []*gcpfake.OperationError{c.fail}})
			} else {
				r.answer(insertMethod, c.refuse)
			}
			req := r.request()
			_, err := r.ensure(req)
			r.expect(err, c.class, append(c.texts, "crawl-1")...)
			r.expectZones(c.inserts...)
			r.s.ClearFates()
			r.s.OnRequest(nil)
			r.mustEnsure(req)
			r.mustDelete(req.Ref)
		})
	}
}

func TestAQuotaThatIsUsedUpIsNoticedBeforeAnythingIsMade(t *testing.T) {
	for _, c := range []struct{ region, metric string }{{"us-central1", "IN_USE_ADDRESSES"}, {"us-central1", "CPUS"}, {"", "FIREWALLS"}, {"", "CPUS_ALL_REGIONS"}, {"us-central1", "SSD_TOTAL_GB"}} {
		r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.Zones = []string{"us-central1-a"} })
		r.s.SetQuota(c.region, c.metric, 0)
		req := r.request()
		_, err := r.ensure(req)
		r.expect(err, backends.ErrNoCapacity, c.metric+" (", "0 of 0 left", "nothing was made")
		r.expectZones()
		r.expectNothing(req.Ref)
	}
}

func TestSpotInstancesCountForTheirOwnQuotaWhereThereIsOne(t *testing.T) {
	r := newRig(t)
	r.s.SetQuota("us-central1", "CPUS", 0)
	r.s.SetQuota("europe-west1", "CPUS", 0)
	req := r.request()
	req.MachineType = "spot"
	_, err := r.ensure(req)
	r.expect(err, backends.ErrNoCapacity, "CPUS (")
	r.s.SetQuota("us-central1", "PREEMPTIBLE_CPUS", 8)
	if _, i := r.mustEnsure(req); !i.Spot {
		t.Errorf("it is no spot instance: %+v", i)
	}
}

func TestAnImageThatIsNotThereIsPermanent(t *testing.T) {
	r := newRig(t, func(_ *Config, h *backends.HostConfig) { h.Images["ubuntu"] = backends.Image{Family: "nobodys"} })
	_, err := r.ensure(r.request())
	r.expect(err, backends.ErrPermanent, "see image ubuntu in the agent's configuration", "images/family/nobodys")
}

func TestAMissingPermissionIsNamed(t *testing.T) {
	r := newRig(t)
	r.s.Deny("compute.instances.create")
	_, err := r.ensure(r.request())
	r.expect(err, backends.ErrHostFault, "Required 'compute.instances.create' permission")
}

func TestAnInsertWhoseAnswerWasLostIsFound(t *testing.T) {
	r := newRig(t)
	mend := r.cut(insertMethod)
	req := r.request()
	_, err := r.ensure(req)
	r.expect(err, backends.ErrTransient, "no answer", "found out by asking again")
	mend()
	r.b = r.open()
	r.mustEnsure(req)
	r.expectZones("us-central1-a")
	r.mustDelete(req.Ref)
}

func TestAnInsertWhoseRequestWasLostIsSentAgainAsTheSame(t *testing.T) {
	r := newRig(t)
	r.s.OnRequest(func(q gcpfake.Request) gcpfake.Action {
		if q.Method == insertMethod {
			return gcpfake.Action{Cut: gcpfake.CutBefore}
		}
		return gcpfake.Action{}
	})
	req := r.request()
	_, err := r.ensure(req)
	r.expect(err, backends.ErrTransient, "no answer")
	r.s.OnRequest(nil)
	r.mustEnsure(req)
	if _, ids := r.inserts(); len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("requestIds %v, want the same twice", ids)
	}
}

// killed leaves an insert under way, as a killed agent does: its context ends while the operation
// runs, and another agent is opened.
func (r *rig) killed(req backends.Request) {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for r.s.Count("compute.zoneOperations.get") == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := r.b.Ensure(ctx, req, nil); err == nil {
		r.Fatal("it was not killed")
	}
	r.b = r.open()
}

func TestAnOperationIsFollowedAcrossARestart(t *testing.T) {
	r := newRig(t)
	release := r.s.HoldOperations()
	r.conf.Firewall.Manage = new(bool)
	r.b = r.open()
	req := r.request()
	r.killed(req)
	release()
	r.mustEnsure(req)
	r.expectZones("us-central1-a")
	r.mustDelete(req.Ref)
}

func TestAFailureAfterARestartReachesTheState(t *testing.T) {
	r := newRig(t)
	r.conf.Firewall.Manage, r.conf.Zones = new(bool), []string{"us-central1-a"}
	r.b = r.open()
	release := r.s.HoldOperations()
	r.s.StockOut("us-central1-a")
	req := r.request()
	r.killed(req)
	release()
	_, err := r.ensure(req)
	r.expect(err, backends.ErrNoCapacity, "ZONE_RESOURCE_POOL_EXHAUSTED: ")
	r.expectZones("us-central1-a")
	r.mustDelete(req.Ref)
}

func TestAnInsertUnderWayIsWaitedForBeforeDeleting(t *testing.T) {
	for _, lost := range []bool{false, true} {
		r := newRig(t)
		r.conf.Firewall.Manage = new(bool)
		r.b = r.open()
		req := r.request()
		if lost { // not even its operation is known
			mend := r.cut(insertMethod)
			if _, err := r.ensure(req); err == nil {
				t.Fatal("the answer was not lost")
			}
			mend()
			r.b = r.open()
		} else {
			release := r.s.HoldOperations()
			r.killed(req)
			time.AfterFunc(50*time.Millisecond, release)
		}
		r.mustDelete(req.Ref)
	}
}

func TestAnOperationThatNobodyKnowsAnyMoreIsJudgedByWhatIsThere(t *testing.T) {
	r := newRig(t)
	r.conf.Firewall.Manage = new(bool)
	r.b = r.open()
	release := r.s.HoldOperations()
	req := r.request()
	r.killed(req)
	release()
	time.Sleep(50 * time.Millisecond)
	r.s.ForgetOperations()
	r.mustEnsure(req)
	r.expectZones("us-central1-a")
}

func TestAnInstanceThatIsThereAlreadyIsAdopted(t *testing.T) {
	r := newRig(t)
	req := r.request()
	// It comes between the survey and the insert.
	r.s.OnRequest(func(q gcpfake.Request) gcpfake.Action {
		if q.Method != insertMethod || q.Query.Get("requestId") == "" {
			return gcpfake.Action{}
		}
		return gcpfake.Action{Before: func() {
			r.s.OnRequest(nil)
			m := backends.Mark{Installation: r.owner.Installation, HostID: r.owner.HostID, Proxy: req.Proxy, UID: req.UID, CreatedAt: time.Now()}
			plantIn("us-central1-a", "instances")(t, r.host, req.Ref, m)
		}}
	})
	if _, i := r.mustEnsure(req); i.Labels[labelUID] != req.UID {
		t.Errorf("got %+v", i)
	}
	r.mustDelete(req.Ref)
}

func TestADiskThatIsLeftNeverBlocksARecreation(t *testing.T) {
	r := newRig(t)
	req := r.request()
	_, i := r.mustEnsure(req)
	r.s.Edit("projects/"+i.Project+"/zones/"+i.Zone+"/instances/"+i.Name, func(doc map[string]any) {
		doc["disks"].([]any)[0].(map[string]any)["autoDelete"] = false
	})
	r.s.RemoveInstance(i.Zone, i.Name)
	l, err := r.b.List(r.ctx())
	if err != nil || len(l.Instances) != 0 {
		t.Fatalf("%+v %v", l, err)
	}
	var kinds []string
	for _, o := range l.Leftovers {
		kinds = append(kinds, o.Kind)
	}
	if slices.Sort(kinds); strings.Join(kinds, " ") != "disk firewall state" {
		t.Errorf("leftovers are %v, want disk, firewall, state", kinds)
	}
	r.mustEnsure(req)
	r.mustDelete(req.Ref)
}
