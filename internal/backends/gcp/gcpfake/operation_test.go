package gcpfake_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

func TestAnOperationHasItsEffectWhenItIsDueAndNotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, gcpfake.Options{Latency: 30 * time.Second})
		op := w.begin("POST", instances, body("one"))
		if op["status"] != "RUNNING" || op["operationType"] != "insert" || !strings.HasSuffix(op["targetLink"].(string), "/instances/one") {
			t.Errorf("accepted: %v", op)
		}
		if i := w.get(instances + "/one"); i["status"] != "PROVISIONING" || at[string](i, "networkInterfaces", 0, "networkIP") != "" {
			t.Errorf("at once: %v", i)
		}
		began := time.Now()
		done := w.get("/compute/v1/projects/fleet-test/zones/us-central1-a/operations/" + op["name"].(string))
		if done["status"] != "RUNNING" {
			t.Errorf("at once: %v", done)
		}
		code, done := w.do("POST", root+"/zones/us-central1-a/operations/"+op["name"].(string)+"/wait", "")
		if took := time.Since(began); code != 200 || done["status"] != "DONE" || took != 30*time.Second {
			t.Errorf("wait: %d %v after %v", code, done, took)
		}
		if i := w.get(instances + "/one"); i["status"] != "RUNNING" || at[string](i, "networkInterfaces", 0, "networkIP") == "" {
			t.Errorf("at the end: %v", i)
		}
	})
}

func TestWaitGivesUpAfterTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, gcpfake.Options{})
		release := w.s.HoldOperations()
		op := w.begin("POST", instances, body("one"))
		began := time.Now()
		_, seen := w.do("POST", root+"/zones/us-central1-a/operations/"+op["name"].(string)+"/wait", "")
		if took := time.Since(began); seen["status"] != "RUNNING" || took != 2*time.Minute {
			t.Errorf("%v after %v", seen["status"], took)
		}
		time.AfterFunc(time.Minute, release)
		_, seen = w.do("POST", root+"/zones/us-central1-a/operations/"+op["name"].(string)+"/wait", "")
		if took := time.Since(began); seen["status"] != "DONE" || took != 3*time.Minute {
			t.Errorf("%v after %v", seen["status"], took)
		}
	})
}

func TestAnInsertThatFailsLateLeavesNothing(t *testing.T) {
	project := "fleet-test"
	for what, c := range map[string]struct {
		trouble func(s *gcpfake.Server)
		code    string
		message string
		status  float64
	}{
		"no room": {func(s *gcpfake.Server) { s.StockOut(zoneA) }, "ZONE_RESOURCE_POOL_EXHAUSTED",
			"The zone 'projects/fleet-test/zones/us-central1-a' does not have enough resources available to fulfill the request.", 503},
		"room elsewhere": {func(s *gcpfake.Server) { s.StockOutOf(zoneA, "e2-small", "us-central1-b", "us-central1-f") }, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
			"in the us-central1-b,us-central1-f zone(s)", 503},
		"no processors": {func(s *gcpfake.Server) { s.SetQuota("us-central1", "CPUS", 1) }, "QUOTA_EXCEEDED",
			"Quota 'CPUS' exceeded.  Limit: 1.0 in region us-central1.", 403},
		"no processors anywhere": {func(s *gcpfake.Server) { s.SetQuota("", "CPUS_ALL_REGIONS", 1) }, "QUOTA_EXCEEDED",
			"Quota 'CPUS_ALL_REGIONS' exceeded.  Limit: 1.0 globally.", 403},
		"no addresses": {func(s *gcpfake.Server) { s.SetQuota("us-central1", "IN_USE_ADDRESSES", 0) }, "QUOTA_EXCEEDED", "IN_USE_ADDRESSES", 403},
		"no machines":  {func(s *gcpfake.Server) { s.SetQuota("us-central1", "INSTANCES", 0) }, "QUOTA_EXCEEDED", "INSTANCES", 403},
		"no space":     {func(s *gcpfake.Server) { s.SetQuota("us-central1", "DISKS_TOTAL_GB", 9) }, "QUOTA_EXCEEDED", "DISKS_TOTAL_GB", 403},
		"an account of somebody": {func(s *gcpfake.Server) { s.Deny("iam.serviceAccounts.actAs") }, "SERVICE_ACCOUNT_ACCESS_DENIED",
			"does not have access to service account 'robot@fleet-test.iam.gserviceaccount.com'", 400},
		"said so": {func(s *gcpfake.Server) {
			s.SetFate(gcpfake.Fate{Fail: []*gcpfake.OperationError{gcpfake.InternalError()}})
		}, "INTERNAL_ERROR", "Internal error", 500},
		"two errors": {func(s *gcpfake.Server) {
			s.SetFate(gcpfake.Fate{Method: "compute.instances.insert", Zone: zoneA, Target: "one",
				Fail: []*gcpfake.OperationError{gcpfake.OperationRateExceeded("projects/" + project + "/global/images/i"), gcpfake.PermissionsError("compute.images.useReadOnly", "i")}})
		}, "RESOURCE_OPERATION_RATE_EXCEEDED PERMISSIONS_ERROR", "Operation rate exceeded", 403},
	} {
		w := newWire(t, gcpfake.Options{Latency: time.Millisecond})
		c.trouble(w.s)
		op := w.begin("POST", instances, body("one", "serviceAccounts", []any{doc{"email": "robot@fleet-test.iam.gserviceaccount.com"}}))
		if codes := w.wait(op); codes != c.code {
			t.Errorf("%s: codes %q, want %q", what, codes, c.code)
		}
		op = w.get(root + "/zones/us-central1-a/operations/" + op["name"].(string))
		if message := at[string](op, "error", "errors", 0, "message"); !strings.Contains(message, c.message) || op["httpErrorStatusCode"] != c.status || op["progress"] != 100.0 {
			t.Errorf("%s: %v", what, op)
		}
		if left := append(w.s.Keys("instances"), w.s.Keys("disks")...); len(left) > 0 {
			t.Errorf("%s: left %v", what, left)
		}
		if code, _ := w.do("GET", instances+"/one", ""); code != 404 {
			t.Errorf("%s: the machine answers %d", what, code)
		}
	}
}

const zoneA = "us-central1-a"

func TestZonesWithRoomAreNamedInTheDetails(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: time.Millisecond})
	w.s.StockOut(zoneA, "us-central1-b")
	op := w.begin("POST", instances, body("one"))
	w.wait(op)
	op = w.get(root + "/zones/us-central1-a/operations/" + op["name"].(string))
	var found any
	for _, d := range at[[]any](op, "error", "errors", 0, "errorDetails") {
		if m := at[doc](d, "errorInfo", "metadatas"); m != nil {
			found = m["zonesAvailable"]
		}
	}
	if found != "us-central1-b" {
		t.Errorf("zonesAvailable %v in %v", found, op)
	}
	w.run("POST", strings.ReplaceAll(instances, "-a/", "-b/"), strings.ReplaceAll(body("one"), "us-central1-a", "us-central1-b"))
	w.s.Restock(zoneA)
	w.run("POST", instances, body("two"))
}

func TestAnImageThatVanishesFailsTheInsert(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: time.Millisecond})
	release := w.s.HoldOperations()
	op := w.begin("POST", instances, body("one"))
	for _, key := range w.s.Keys("images") {
		w.s.Remove(key)
	}
	release()
	if codes := w.wait(op); codes != "RESOURCE_NOT_FOUND" {
		t.Errorf("codes %q", codes)
	}
}

func TestAFateMeetsAsManyOperationsAsItSays(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: time.Millisecond})
	w.s.SetFate(gcpfake.Fate{Times: 2, Fail: []*gcpfake.OperationError{gcpfake.InternalError()}})
	for i, want := range []string{"INTERNAL_ERROR", "INTERNAL_ERROR", ""} {
		if codes := w.wait(w.begin("POST", instances, body("one"))); codes != want {
			t.Errorf("%d: %q, want %q", i, codes, want)
		}
	}
	w.s.SetFate(gcpfake.Fate{Method: "compute.instances.stop", Fail: []*gcpfake.OperationError{gcpfake.InternalError()}, Done: true})
	if codes := w.wait(w.begin("POST", instances+"/one/stop", "")); codes != "INTERNAL_ERROR" || w.get(instances + "/one")["status"] != "TERMINATED" {
		t.Errorf("a stop that is done and says that it failed: %q, %v", codes, w.get(instances + "/one")["status"])
	}
	w.s.ClearFates()
	w.run("POST", instances+"/one/start", "")
}

func TestWorkOnOneMachineIsDoneInItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, gcpfake.Options{Latency: time.Second})
		w.s.SetFate(gcpfake.Fate{Times: 1, Delay: time.Hour})
		w.begin("POST", instances, body("one"))
		op := w.begin("DELETE", instances+"/one", "")
		began := time.Now()
		if codes := w.wait(op); codes != "" || time.Since(began) < time.Hour || len(w.s.Keys("instances"))+len(w.s.Keys("disks")) > 0 {
			t.Errorf("%q after %v, left %v", codes, time.Since(began), w.s.Keys("instances"))
		}
	})
}

func TestARequestIDIsGoodForOneRequest(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: time.Millisecond})
	const once = "?requestId=6f9619ff-8b86-d011-b42d-00c04fc964ff"
	op := w.begin("POST", instances+once, body("one"))
	if again := w.begin("POST", instances+once, body("one")); again["name"] != op["name"] || again["clientOperationId"] != "6f9619ff-8b86-d011-b42d-00c04fc964ff" {
		t.Errorf("repeated: %v, want %v", again, op["name"])
	}
	w.wait(op)
	w.run("DELETE", instances+"/one", "")
	if again := w.begin("POST", instances+once, body("one")); again["name"] != op["name"] || again["status"] != "DONE" {
		t.Errorf("repeated after the end of its machine: %v", again)
	}
	if len(w.s.Keys("instances")) != 0 {
		t.Error("a replay made a machine")
	}
	for what, request := range map[string][3]string{
		"another body":   {"POST", instances + once, body("two")},
		"another method": {"DELETE", instances + "/one" + once, ""},
		"another zone":   {"POST", strings.ReplaceAll(instances, "-a/", "-b/") + once, body("one")},
	} {
		if code, out := w.do(request[0], request[1], request[2]); code != 400 || !strings.Contains(at[string](out, "error", "message"), "already used") {
			t.Errorf("%s: %d %v", what, code, out)
		}
	}
}

func TestARefusedRequestIsJudgedAnewWithItsID(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: time.Millisecond})
	const once = "?requestId=6f9619ff-8b86-d011-b42d-00c04fc964ff"
	w.s.Deny("compute.instances.create")
	if code, _ := w.do("POST", instances+once, body("one")); code != 403 {
		t.Fatalf("status %d", code)
	}
	w.s.Allow()
	w.run("POST", instances+once, body("one"))
}

func TestOperationsAreListedAndForgotten(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: time.Millisecond})
	w.run("POST", instances, body("one"))
	w.run("POST", root+"/global/firewalls", `{"name":"f","allowed":[{"IPProtocol":"tcp"}]}`)
	w.run("POST", root+"/regions/us-central1/addresses", `{"name":"a"}`)
	for path, want := range map[string]int{"/zones/us-central1-a/operations": 1, "/regions/us-central1/operations": 1, "/global/operations": 1, "/zones/us-central1-b/operations": 0} {
		if items := at[[]any](w.get(root+path), "items"); len(items) != want {
			t.Errorf("%s: %d operations, want %d", path, len(items), want)
		}
	}
	filter := "?filter=targetId%3D" + at[string](w.get(instances+"/one"), "id")
	if items := at[[]any](w.get(root+"/zones/us-central1-a/operations"+filter), "items"); len(items) != 1 {
		t.Errorf("operations on the machine: %v", items)
	}
	op := at[string](w.get(root+"/zones/us-central1-a/operations"), "items", 0, "name")
	w.s.ForgetOperations()
	if code, _ := w.do("GET", root+"/zones/us-central1-a/operations/"+op, ""); code != 404 {
		t.Errorf("forgotten: %d", code)
	}
}
