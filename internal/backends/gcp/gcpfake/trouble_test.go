package gcpfake_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

func TestAPermissionThatIsTakenAwayIsNamed(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one"))
	nat := doc{"accessConfigs": []any{doc{}}}
	key := "projects/fleet-test/zones/us-central1-a/instances/"
	for permission, c := range map[string]struct{ method, path, body, on string }{
		"compute.instances.get":             {"GET", instances + "/one", "", key + "one"},
		"compute.instances.list":            {"GET", root + "/aggregated/instances", "", "projects/fleet-test"},
		"compute.instances.create":          {"POST", instances, body("x"), key + "x"},
		"compute.instances.delete":          {"DELETE", instances + "/one", "", key + "one"},
		"compute.instances.stop":            {"POST", instances + "/one/stop", "", key + "one"},
		"compute.instances.setLabels":       {"POST", instances, body("x", "labels", doc{"a": "b"}), key + "x"},
		"compute.instances.setMetadata":     {"POST", instances, body("x", "metadata", doc{"items": []any{doc{"key": "k", "value": "v"}}}), key + "x"},
		"compute.instances.setTags":         {"POST", instances, body("x", "tags", doc{"items": []any{"t"}}), key + "x"},
		"compute.disks.create":              {"POST", instances, body("x"), "projects/fleet-test/zones/us-central1-a/disks/x"},
		"compute.subnetworks.use":           {"POST", instances, body("x"), "projects/fleet-test/regions/us-central1/subnetworks/default"},
		"compute.subnetworks.useExternalIp": {"POST", instances, body("x", "networkInterfaces", []any{nat}), "projects/fleet-test/regions/us-central1/subnetworks/default"},
		"compute.regions.get":               {"GET", root + "/regions/us-central1", "", "projects/fleet-test/regions/us-central1"},
		"compute.networks.updatePolicy":     {"POST", root + "/global/firewalls", `{"name":"f","allowed":[{"IPProtocol":"tcp"}]}`, "projects/fleet-test/global/networks/default"},
		"compute.zoneOperations.get":        {"GET", root + "/zones/us-central1-a/operations/x", "", "projects/fleet-test/zones/us-central1-a/operations/x"},
	} {
		w.s.Deny(permission)
		code, out := w.do(c.method, c.path, c.body)
		want := "Required '" + permission + "' permission for '" + c.on + "'"
		if code != 403 || at[string](out, "error", "message") != want || at[string](out, "error", "errors", 0, "reason") != "forbidden" {
			t.Errorf("%s: %d %v, want %q", permission, code, out, want)
		}
		_, held := w.do("POST", "/v3/projects/fleet-test:testIamPermissions", `{"permissions":["`+permission+`","compute.zones.get"]}`)
		if at[string](held, "permissions", 0) != "compute.zones.get" {
			t.Errorf("%s: held %v", permission, held)
		}
		w.s.Allow(permission)
	}
	w.s.AllowOnly("compute.zones.list")
	w.get(root + "/zones")
	if code, out := w.do("GET", root+"/regions", ""); code != 403 {
		t.Errorf("beyond what is allowed: %d %v", code, out)
	}
	w.s.Allow()
	w.s.Deny("compute.images.useReadOnly", "compute.images.getFromFamily")
	w.get("/compute/v1/projects/debian-cloud/global/images/family/debian-13") // Google's own images are for all
	w.s.Allow()
	for _, path := range []string{"/v1/projects/fleet-test:testIamPermissions", "/v3/projects/fleet-test:testIamPermissions", instances + "/one/testIamPermissions"} {
		if _, out := w.do("POST", path, `{"permissions":["compute.instances.get"]}`); at[string](out, "permissions", 0) != "compute.instances.get" {
			t.Errorf("%s: %v", path, out)
		}
	}
}

func TestTheRateIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, gcpfake.Options{})
		w.s.LimitRate(2, time.Minute)
		for i, want := range []int{200, 200, 403} {
			code, out := w.do("GET", root+"/zones", "")
			if code != want || want == 403 && at[string](out, "error", "errors", 0, "reason") != "rateLimitExceeded" {
				t.Errorf("%d: %d %v", i, code, out)
			}
		}
		time.Sleep(time.Minute)
		w.get(root + "/zones")
		w.s.LimitRate(0, 0)
		w.get(root + "/zones")
		w.get(root + "/zones")
	})
}

func TestTheHookStandsInFrontOfEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire(t, gcpfake.Options{Latency: quick})
		var act gcpfake.Action
		w.s.OnRequest(func(r gcpfake.Request) gcpfake.Action {
			if r.Method == "compute.instances.insert" {
				return act
			}
			return gcpfake.Action{}
		})
		for what, c := range map[string]struct {
			error         *gcpfake.Error
			code          int
			reason, retry string
		}{
			"429":      {gcpfake.TooManyRequests(7), 429, "rateLimitExceeded", "7"},
			"503":      {gcpfake.BackendError(), 503, "backendError", ""},
			"502":      {gcpfake.BadGateway(), 502, "", ""},
			"rate":     {gcpfake.RateLimited("Queries"), 403, "rateLimitExceeded", ""},
			"disabled": {gcpfake.ServiceDisabled(), 403, "accessNotConfigured", ""},
		} {
			act = gcpfake.Action{Error: c.error}
			code, out := w.do("POST", instances, body("one"))
			if code != c.code || at[string](out, "error", "errors", 0, "reason") != c.reason {
				t.Errorf("%s: %d %v", what, code, out)
			}
		}
		for what, c := range map[string]struct {
			cut  gcpfake.Cut
			made int
		}{"before": {gcpfake.CutBefore, 0}, "after": {gcpfake.CutAfter, 1}, "in the middle": {gcpfake.CutMiddle, 1}} {
			act = gcpfake.Action{Cut: c.cut}
			if code, out, err := w.try("POST", instances, body("one")); err == nil {
				t.Errorf("%s: %d %v", what, code, out)
			}
			if made := w.s.Instances(); len(made) != c.made {
				t.Errorf("%s: %d machines, want %d", what, len(made), c.made)
			}
			for _, i := range w.s.Instances() {
				w.s.Remove("projects/fleet-test/zones/" + i.Zone + "/instances/" + i.Name)
			}
			w.s.ForgetOperations()
		}
		var order []string
		act = gcpfake.Action{Delay: time.Hour,
			Before: func() { order = append(order, "before", w.s.URL(), strings.Join(w.s.Keys("instances"), "")) },
			After:  func() { order = append(order, "after", strings.Join(w.s.Keys("instances"), "")) }}
		began := time.Now()
		w.begin("POST", instances, body("two"))
		if got := strings.Join(order, " "); time.Since(began) != time.Hour || got != "before "+w.s.URL()+"  after projects/fleet-test/zones/us-central1-a/instances/two" {
			t.Errorf("after %v: %q", time.Since(began), got)
		}
		w.s.OnRequest(nil)
		w.get(root + "/zones")
	})
}

func TestRequestsAreRecorded(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one"))
	w.do("GET", instances+"/gone?fields=name", "")
	if n := w.s.Count("compute.instances.insert"); n != 1 {
		t.Errorf("inserts: %d", n)
	}
	all := w.s.Requests()
	last := all[len(all)-1]
	if len(all) != w.s.Count("") || last.Method != "compute.instances.get" || last.Last() != "gone" || last.Query.Get("fields") != "name" || last.Status != 404 {
		t.Errorf("%+v", last)
	}
	if !strings.Contains(all[0].Body, `"name":"one"`) || all[0].Status != 200 {
		t.Errorf("%+v", all[0])
	}
	w.s.ForgetRequests()
	if w.s.Count("") != 0 {
		t.Error("not forgotten")
	}
}

func TestATokenIsAskedForWhereThereIsOne(t *testing.T) {
	w := newWire(t, gcpfake.Options{Token: "secret"})
	code, out := w.do("GET", root+"/zones", "")
	if code != 401 || at[string](out, "error", "status") != "UNAUTHENTICATED" {
		t.Errorf("%d %v", code, out)
	}
	try := func(token string) int {
		req, _ := http.NewRequest("GET", w.s.URL()+root+"/zones", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := w.s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if try("secret") != 200 || try("guess") != 401 {
		t.Errorf("with the token %d, with another %d", try("secret"), try("guess"))
	}
	w.s.RevokeTokens()
	if try("secret") != 401 {
		t.Error("a revoked token is good")
	}
}

func TestTheSerialPortTellsOfTheBoot(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one"))
	w.s.WriteSerial(zoneA, "one", "cloud-init: done\n")
	out := w.get(instances + "/one/serialPort")
	if !strings.Contains(out["contents"].(string), "cloud-init: done") {
		t.Errorf("%v", out)
	}
	if rest := w.get(instances + "/one/serialPort?start=" + out["next"].(string)); rest["contents"] != "" && rest["contents"] != nil {
		t.Errorf("from its end: %v", rest)
	}
	if tail := w.get(instances + "/one/serialPort?start=-5"); tail["contents"] != "done\n" {
		t.Errorf("the last five: %v", tail)
	}
	if other := w.get(instances + "/one/serialPort?port=2"); other["contents"] != "" && other["contents"] != nil {
		t.Errorf("another port: %v", other)
	}
}

func TestAMachineMayBeProtected(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one", "deletionProtection", true))
	if code, out := w.do("DELETE", instances+"/one", ""); code != 400 || !strings.Contains(at[string](out, "error", "message"), "protected against deletion") {
		t.Errorf("%d %v", code, out)
	}
	w.s.Edit("projects/fleet-test/zones/us-central1-a/instances/one", func(d map[string]any) {
		d["deletionProtection"] = false
		d["labels"] = map[string]any{"by": "hand"}
	})
	if w.s.Instances()[0].Labels["by"] != "hand" || w.s.Document("projects/fleet-test/zones/us-central1-a/instances/one")["name"] != "one" {
		t.Errorf("%+v", w.s.Instances()[0])
	}
	w.run("DELETE", instances+"/one", "")
}

func TestSeveralProjectsAreApart(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.s.AddProject("second")
	w.run("POST", instances, body("one"))
	w.run("POST", strings.Replace(instances, "fleet-test", "second", 1), body("one"))
	if n := len(w.s.Instances()); n != 2 {
		t.Errorf("%d machines", n)
	}
	w.run("DELETE", instances+"/one", "")
	if all := w.s.Instances(); len(all) != 1 || all[0].Project != "second" {
		t.Errorf("%+v", all)
	}
}
