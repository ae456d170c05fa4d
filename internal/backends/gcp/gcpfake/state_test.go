package gcpfake_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

const quick = time.Millisecond

func names(list []any) string {
	var out []string
	for _, v := range list {
		out = append(out, at[string](v, "name"))
	}
	return strings.Join(out, " ")
}

func TestListsComeInPagesAndBearChangesBetweenThem(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick, PageSize: 2})
	for _, n := range []string{"e", "a", "c", "b", "d"} {
		w.run("POST", instances, body(n))
	}
	first := w.get(instances + "?maxResults=400")
	if names(at[[]any](first, "items")) != "a b" {
		t.Errorf("first page: %v", first)
	}
	w.s.RemoveInstance(zoneA, "b")
	w.s.RemoveInstance(zoneA, "c")
	second := w.get(instances + "?pageToken=" + first["nextPageToken"].(string))
	if names(at[[]any](second, "items")) != "d e" || second["nextPageToken"] != nil {
		t.Errorf("second page: %v", second)
	}
	if one := w.get(instances + "?maxResults=1"); names(at[[]any](one, "items")) != "a" || one["nextPageToken"] == nil {
		t.Errorf("a page of one: %v", one)
	}
	all := w.get(root + "/aggregated/instances")
	if names(at[[]any](all, "items", "zones/us-central1-a", "instances")) != "a d" || all["nextPageToken"] == nil {
		t.Errorf("first page of the aggregated list: %v", all)
	}
	all = w.get(root + "/aggregated/instances?pageToken=" + all["nextPageToken"].(string))
	if names(at[[]any](all, "items", "zones/us-central1-a", "instances")) != "e" {
		t.Errorf("second page of the aggregated list: %v", all)
	}
	if code, _ := w.do("GET", instances+"?filter=name%3Da&pageToken="+first["nextPageToken"].(string), ""); code != 400 {
		t.Errorf("a token with another filter: %d", code)
	}
}

func TestFilters(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("a", "labels", doc{"fleet": "x", "color": "red"}))
	w.run("POST", instances, body("b", "labels", doc{"fleet": "x"}))
	w.run("POST", instances, body("c", "labels", doc{"fleet": "y"}))
	w.run("POST", instances+"/c/stop", "")
	for filter, want := range map[string]string{
		``:                                        "a b c",
		`labels.fleet=x`:                          "a b",
		`labels.fleet = "x"`:                      "a b",
		`labels.fleet!=x`:                         "c",
		`labels.color:*`:                          "a",
		`name=b`:                                  "b",
		`name eq "a|b"`:                           "a b",
		`name ne a.*`:                             "b c",
		`name eq '[bc]'`:                          "b c",
		`labels.fleet=x AND labels.color=red`:     "a",
		`(labels.fleet = x) (name = b)`:           "b",
		`(name=a) OR (name=c)`:                    "a c",
		`(status = RUNNING) AND labels.fleet=x`:   "a b",
		`scheduling.automaticRestart = true`:      "a b c",
		`((name=a) OR (name=b)) (labels.color:*)`: "a",
	} {
		if got := names(at[[]any](w.get(instances+"?filter="+url.QueryEscape(filter)), "items")); got != want {
			t.Errorf("%s: %q, want %q", filter, got, want)
		}
	}
	for _, filter := range []string{`labels.fleet`, `= x`, `name = `, `name > a`, `NOT name=a`, `name=a OR name=b AND name=c`, `name=a name=b`,
		`(name=a`, `name=a)`, `name=a*`, `name:a`, `name eq [`, `metadata.key=x`, `colour=red`, `tags=x`, `disks.boot=true`, `Labels.fleet=x`, `"name"=a`} {
		code, out := w.do("GET", instances+"?filter="+url.QueryEscape(filter), "")
		if code != 400 || !strings.Contains(at[string](out, "error", "message"), "Invalid list filter expression") {
			t.Errorf("%s: %d %v", filter, code, out)
		}
	}
}

func TestAFilterAsksForWhatTheThingsHave(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	for path, want := range map[string]int{
		"/aggregated/instances?filter=labels.a%3Db": 200,
		"/aggregated/disks?filter=labels.a%3Db":     200,
		"/aggregated/addresses?filter=status%3DX":   200,
		"/global/firewalls?filter=labels.a%3Db":     400, // rules have no labels
		"/global/firewalls?filter=sourceRanges%3Dx": 400,
	} {
		if code, out := w.do("GET", root+path, ""); code != want {
			t.Errorf("%s: %d %v", path, code, out)
		}
	}
}

func TestAnAggregatedListLeavesOutWhatDoesNotAnswer(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("a"))
	path, text := inZone("us-central1-b", body("b"))
	w.run("POST", path, text)
	w.s.Unreachable("us-central1-b", true)
	if code, _ := w.do("GET", root+"/aggregated/instances", ""); code != 503 {
		t.Errorf("without returnPartialSuccess: %d", code)
	}
	all := w.get(root + "/aggregated/instances?returnPartialSuccess=true")
	if at[string](all, "unreachables", 0) != "projects/fleet-test/zones/us-central1-b" ||
		at[string](all, "items", "zones/us-central1-b", "warning", "code") != "UNREACHABLE" ||
		at[string](all, "items", "zones/europe-west1-b", "warning", "code") != "NO_RESULTS_ON_PAGE" ||
		names(at[[]any](all, "items", "zones/us-central1-a", "instances")) != "a" {
		t.Errorf("%v", all)
	}
	if code, _ := w.do("GET", path+"/b", ""); code != 503 {
		t.Errorf("a machine there: %d", code)
	}
	w.s.Unreachable("us-central1-b", false)
	if i := w.get(path + "/b"); i["status"] != "RUNNING" {
		t.Errorf("afterwards: %v", i)
	}
	w.s.Unreachable("us-central1", true)
	if disks := w.get(root + "/aggregated/disks?returnPartialSuccess=true"); at[string](disks, "unreachables", 0) != "projects/fleet-test/regions/us-central1" {
		t.Errorf("a region that is silent: %v", disks["unreachables"])
	}
}

func TestFingerprintsGuardLabelsMetadataAndTags(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one", "labels", doc{"a": "1"}))
	for _, c := range []struct{ call, body, part, field string }{
		{"setLabels", `{"labels":{"a":"2"},"labelFingerprint":%q}`, "", "labelFingerprint"},
		{"setMetadata", `{"items":[{"key":"k","value":"v"}],"fingerprint":%q}`, "metadata", "fingerprint"},
		{"setTags", `{"items":["t"],"fingerprint":%q}`, "tags", "fingerprint"},
	} {
		mark := func() string {
			i := w.get(instances + "/one")
			if c.part != "" {
				i = i[c.part].(doc)
			}
			return i[c.field].(string)
		}
		old := mark()
		for _, wrong := range []string{"", "AAAAAAAAAAA="} {
			code, out := w.do("POST", instances+"/one/"+c.call, fmt.Sprintf(c.body, wrong))
			if code != 412 || at[string](out, "error", "errors", 0, "reason") != "conditionNotMet" {
				t.Errorf("%s with the fingerprint %q: %d %v", c.call, wrong, code, out)
			}
		}
		release := w.s.HoldOperations()
		first := w.begin("POST", instances+"/one/"+c.call, fmt.Sprintf(c.body, old))
		second := w.begin("POST", instances+"/one/"+c.call, fmt.Sprintf(c.body, old))
		release()
		if codes := w.wait(first) + "/" + w.wait(second); codes != "/CONDITION_NOT_MET" {
			t.Errorf("%s twice at once: %s", c.call, codes)
		}
		if mark() == old {
			t.Errorf("%s: the fingerprint stayed", c.call)
		}
	}
	i := w.s.Instances()[0]
	if i.Labels["a"] != "2" || i.Metadata["k"] != "v" || !slices.Equal(i.Tags, []string{"t"}) {
		t.Errorf("%+v", i)
	}
}

func TestAMachineGoesThroughItsStates(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one"))
	before := w.s.Instances()[0]
	for _, step := range []struct{ call, status, via string }{
		{"start", "RUNNING", "RUNNING"},
		{"suspend", "SUSPENDED", "SUSPENDING"},
		{"stop", "SUSPENDED", ""},
		{"start", "SUSPENDED", ""},
		{"reset", "SUSPENDED", ""},
		{"resume", "RUNNING", "STAGING"},
		{"resume", "RUNNING", "RUNNING"},
		{"reset", "RUNNING", "RUNNING"},
		{"stop", "TERMINATED", "STOPPING"},
		{"stop", "TERMINATED", "TERMINATED"},
		{"suspend", "TERMINATED", ""},
		{"resume", "TERMINATED", ""},
		{"start", "RUNNING", "STAGING"},
	} {
		release := w.s.HoldOperations()
		code, op := w.do("POST", instances+"/one/"+step.call, "")
		if (code == 200) != (step.via != "") {
			t.Fatalf("%s: %d %v", step.call, code, op)
		}
		if via := w.s.Instances()[0].Status; step.via != "" && via != step.via {
			t.Errorf("%s: by way of %s, want %s", step.call, via, step.via)
		}
		release()
		if code == 200 {
			w.wait(op)
		}
		i := w.s.Instances()[0]
		if i.Status != step.status || (i.ExternalIP == "") != (step.status != "RUNNING") || i.InternalIP != before.InternalIP {
			t.Errorf("%s: %s with %s and %s", step.call, i.Status, i.InternalIP, i.ExternalIP)
		}
	}
	if w.s.Instances()[0].ExternalIP == before.ExternalIP {
		t.Error("an ephemeral address outlived a stop")
	}
}

func TestAStartMayFindNoRoom(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one"))
	w.run("POST", instances+"/one/stop", "")
	w.s.StockOut(zoneA)
	if codes := w.wait(w.begin("POST", instances+"/one/start", "")); codes != "ZONE_RESOURCE_POOL_EXHAUSTED" || w.s.Instances()[0].Status != "TERMINATED" {
		t.Errorf("%s, %s", codes, w.s.Instances()[0].Status)
	}
	w.s.Restock(zoneA)
	w.s.SetQuota("us-central1", "CPUS", 2)
	w.run("POST", instances+"/one/start", "")
	w.run("POST", instances+"/one/stop", "")
	w.s.SetQuota("us-central1", "CPUS", 1)
	if codes := w.wait(w.begin("POST", instances+"/one/start", "")); codes != "QUOTA_EXCEEDED" {
		t.Errorf("beyond the quota: %q", codes)
	}
}

func TestAMachineThatIsTerminatedKeepsItsDisk(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	spot := func(name, action string) {
		w.run("POST", instances, body(name, "scheduling", doc{"provisioningModel": "SPOT", "instanceTerminationAction": action}))
	}
	spot("kept", "STOP")
	spot("gone", "DELETE")
	w.s.Preempt(zoneA, "kept")
	w.s.Preempt(zoneA, "gone")
	if keys := w.s.Keys("instances"); len(keys) != 1 || w.s.Instances()[0].Status != "TERMINATED" || !w.s.Instances()[0].Spot {
		t.Errorf("machines: %v", keys)
	}
	if disks := w.s.Keys("disks"); len(disks) != 1 || !strings.HasSuffix(disks[0], "/kept") {
		t.Errorf("disks: %v", disks)
	}
	filter := url.QueryEscape(`operationType = "compute.instances.preempted"`)
	ops := at[[]any](w.get(root+"/zones/us-central1-a/operations?filter="+filter), "items")
	if len(ops) != 2 || at[string](ops[0], "user") != "system" || at[string](ops[0], "status") != "DONE" {
		t.Errorf("operations: %v", ops)
	}
	w.run("POST", instances+"/kept/start", "")
	w.s.Terminate(zoneA, "kept")
	if status := w.s.Instances()[0].Status; status != "TERMINATED" {
		t.Errorf("shut down from inside: %s", status)
	}
}

func TestQuotasShowWhatIsUsed(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one"))
	w.run("POST", instances, body("two", "scheduling", doc{"preemptible": true}))
	w.run("POST", instances+"/one/stop", "")
	w.run("POST", root+"/regions/us-central1/addresses", `{"name":"a"}`)
	usage := func(doc doc) map[string]float64 {
		out := map[string]float64{}
		for _, q := range at[[]any](doc, "quotas") {
			out[at[string](q, "metric")] = at[float64](q, "usage")
		}
		return out
	}
	got := usage(w.get(root + "/regions/us-central1"))
	for metric, want := range map[string]float64{"CPUS": 2, "INSTANCES": 2, "IN_USE_ADDRESSES": 1, "STATIC_ADDRESSES": 1, "DISKS_TOTAL_GB": 20, "PREEMPTIBLE_CPUS": 0} {
		if got[metric] != want {
			t.Errorf("%s: %v, want %v", metric, got[metric], want)
		}
	}
	w.s.SetQuota("us-central1", "PREEMPTIBLE_CPUS", 10)
	if got := usage(w.get(root + "/regions/us-central1")); got["PREEMPTIBLE_CPUS"] != 2 || got["CPUS"] != 0 {
		t.Errorf("with a quota for preemptible processors: %v", got)
	}
	if got := usage(at[doc](w.get(root+"/regions"), "items", 0)); got["CPUS"] != 0 {
		t.Errorf("another region: %v", got)
	}
	if got := usage(w.get(root)); got["CPUS_ALL_REGIONS"] != 2 {
		t.Errorf("the project: %v", got)
	}
	w.s.SetQuota("us-central1", "STATIC_ADDRESSES", 1)
	code, out := w.do("POST", root+"/regions/us-central1/addresses", `{"name":"b"}`)
	if code != 403 || at[string](out, "error", "errors", 0, "reason") != "quotaExceeded" || at[string](out, "error", "message") != "Quota 'STATIC_ADDRESSES' exceeded.  Limit: 1.0 in region us-central1." {
		t.Errorf("an address too many: %d %v", code, out)
	}
}

func TestAReservedAddressIsForOneMachine(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	const addresses = root + "/regions/us-central1/addresses"
	w.run("POST", addresses, `{"name":"a","labels":{"k":"v"}}`)
	if code, _ := w.do("POST", addresses, `{"name":"a"}`); code != 409 {
		t.Errorf("the same name: %d", code)
	}
	ip := at[string](w.get(addresses+"/a"), "address")
	with := func(name string) string {
		return body(name, "networkInterfaces", []any{doc{"accessConfigs": []any{doc{"natIP": ip}}}})
	}
	w.run("POST", instances, with("one"))
	if a := w.get(addresses + "/a"); a["status"] != "IN_USE" || !strings.HasSuffix(at[string](a, "users", 0), "/instances/one") || w.s.Instances()[0].ExternalIP != ip {
		t.Errorf("%v", a)
	}
	for what, c := range map[string]func() (int, doc){
		"a second machine": func() (int, doc) { return w.do("POST", instances, with("two")) },
		"its deletion":     func() (int, doc) { return w.do("DELETE", addresses+"/a", "") },
	} {
		if code, out := c(); code != 400 {
			t.Errorf("%s: %d %v", what, code, out)
		}
	}
	w.run("POST", instances+"/one/stop", "")
	w.run("POST", instances+"/one/start", "")
	if w.s.Instances()[0].ExternalIP != ip {
		t.Error("a reserved address was lost at a stop")
	}
	w.run("DELETE", instances+"/one", "")
	if a := w.get(addresses + "/a"); a["status"] != "RESERVED" || a["users"] != nil {
		t.Errorf("after its machine: %v", a)
	}
	w.run("DELETE", addresses+"/a", "")
}

func TestAnInternalAddressIsReservedInASubnetwork(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	const addresses = root + "/regions/us-central1/addresses"
	w.run("POST", addresses, `{"name":"a","addressType":"INTERNAL","subnetwork":"regions/us-central1/subnetworks/default"}`)
	ip := at[string](w.get(addresses+"/a"), "address")
	with := func(name string) string { return body(name, "networkInterfaces", []any{doc{"networkIP": ip}}) }
	w.run("POST", instances, with("one"))
	if a := w.get(addresses + "/a"); a["status"] != "IN_USE" || w.s.Instances()[0].InternalIP != ip {
		t.Errorf("%v, %+v", a, w.s.Instances()[0])
	}
	if code, _ := w.do("POST", instances, with("two")); code != 400 {
		t.Errorf("a second machine: %d", code)
	}
	if code, _ := w.do("POST", instances, body("two", "networkInterfaces", []any{doc{"networkIP": "192.0.2.1"}})); code != 400 {
		t.Errorf("an address elsewhere: %d", code)
	}
	w.run("DELETE", instances+"/one", "")
	w.run("DELETE", addresses+"/a", "")
}

func TestAnAddressMayBeTakenWhileAMachineIsMade(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", root+"/regions/us-central1/addresses", `{"name":"a"}`)
	ip := at[string](w.get(root+"/regions/us-central1/addresses/a"), "address")
	with := func(name string) string {
		return body(name, "networkInterfaces", []any{doc{"accessConfigs": []any{doc{"natIP": ip}}}})
	}
	release := w.s.HoldOperations()
	first, second := w.begin("POST", instances, with("one")), w.begin("POST", instances, with("two"))
	release()
	if codes := w.wait(first) + "/" + w.wait(second); codes != "/IP_IN_USE_BY_ANOTHER_RESOURCE" {
		t.Errorf("two at once: %s", codes)
	}
}

func TestAddressesOfBothFamilies(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.s.AddNetwork("six", "IPV4_IPV6", "EXTERNAL")
	w.s.AddNetwork("inside", "IPV4_IPV6", "INTERNAL")
	nic := func(network string, more doc) []any {
		more["subnetwork"], more["stackType"] = "regions/us-central1/subnetworks/"+network, "IPV4_IPV6"
		return []any{more}
	}
	w.run("POST", instances, body("a", "networkInterfaces", nic("six", doc{"ipv6AccessConfigs": []any{doc{"type": "DIRECT_IPV6", "networkTier": "PREMIUM"}}})))
	w.run("POST", instances, body("b", "networkInterfaces", nic("six", doc{"ipv6AccessConfigs": []any{doc{"type": "DIRECT_IPV6", "networkTier": "PREMIUM"}}})))
	w.run("POST", instances, body("c", "networkInterfaces", nic("inside", doc{})))
	all := w.s.Instances()
	if a, b, c := all[0], all[1], all[2]; a.IPv6 == "" || b.IPv6 == "" || a.IPv6 == b.IPv6 || c.IPv6 == "" || a.ExternalIP != "" || a.InternalIP == b.InternalIP {
		t.Errorf("%+v %+v %+v", a, b, c)
	}
	if code, _ := w.do("POST", instances, body("d", "networkInterfaces", nic("inside", doc{"ipv6AccessConfigs": []any{doc{"type": "DIRECT_IPV6"}}}))); code != 400 {
		t.Errorf("external IPv6 where there is none: %d", code)
	}
}

func TestAFirewallRuleIsPatchedAndUpdated(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	const rules = root + "/global/firewalls"
	w.run("POST", rules, `{"name":"f","sourceRanges":["10.0.0.0/8"],"targetTags":["proxy"],"allowed":[{"IPProtocol":"tcp","ports":["3128"]}]}`)
	w.run("PATCH", rules+"/f", `{"name":"f","sourceRanges":["192.0.2.0/24"]}`)
	f := w.get(rules + "/f")
	if at[string](f, "sourceRanges", 0) != "192.0.2.0/24" || at[string](f, "targetTags", 0) != "proxy" || f["direction"] != "INGRESS" || f["priority"] != 1000.0 {
		t.Errorf("patched: %v", f)
	}
	w.run("PUT", rules+"/f", `{"name":"f","allowed":[{"IPProtocol":"tcp"}]}`)
	if f := w.get(rules + "/f"); f["targetTags"] != nil || at[string](f, "sourceRanges", 0) != "0.0.0.0/0" {
		t.Errorf("updated: %v", f)
	}
	w.run("DELETE", rules+"/f", "")
	if code, _ := w.do("GET", rules+"/f", ""); code != 404 {
		t.Errorf("deleted: %d", code)
	}
}

func TestDisksAndAddressesAreLabelled(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	w.run("POST", instances, body("one"))
	w.run("POST", root+"/regions/us-central1/addresses", `{"name":"a"}`)
	for _, path := range []string{root + "/zones/us-central1-a/disks/one", root + "/regions/us-central1/addresses/a"} {
		mark := at[string](w.get(path), "labelFingerprint")
		w.run("POST", path+"/setLabels", `{"labels":{"a":"b"},"labelFingerprint":"`+mark+`"}`)
		if got := w.get(path); at[string](got, "labels", "a") != "b" || got["labelFingerprint"] == mark {
			t.Errorf("%s: %v", path, got)
		}
		if code, _ := w.do("POST", path+"/setLabels", `{"labels":{},"labelFingerprint":"`+mark+`"}`); code != 412 {
			t.Errorf("%s with the old fingerprint: %d", path, code)
		}
	}
}

func TestWhatGoogleGivesToEveryoneIsListed(t *testing.T) {
	w := newWire(t, gcpfake.Options{})
	for path, want := range map[string]string{
		root + "/zones":   "europe-west1-b us-central1-a us-central1-b",
		root + "/regions": "europe-west1 us-central1",
		root + "/zones/us-central1-a/machineTypes":           "e2-medium e2-micro e2-small e2-standard-2 e2-standard-4 f1-micro n2-standard-2",
		root + "/zones/us-central1-a/diskTypes":              "pd-balanced pd-ssd pd-standard",
		root + "/global/networks":                            "default",
		root + "/regions/us-central1/subnetworks":            "default",
		"/compute/v1/projects/debian-cloud/global/images":    "debian-12-bookworm-v20261110 debian-13-trixie-v20261110",
		"/compute/v1/projects/ubuntu-os-cloud/global/images": "ubuntu-2404-noble-amd64-v20261101",
	} {
		if got := names(at[[]any](w.get(path), "items")); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
		one, _, _ := strings.Cut(want, " ")
		if got := w.get(path + "/" + one); got["name"] != one || got["id"] == nil || got["selfLink"] == nil {
			t.Errorf("%s/%s: %v", path, one, got)
		}
	}
	if items := at[doc](w.get(root+"/aggregated/machineTypes"), "items"); len(items) != 3 {
		t.Errorf("machine types are in %d zones", len(items))
	}
	if items := at[doc](w.get(root+"/aggregated/subnetworks"), "items"); len(items) != 2 {
		t.Errorf("subnetworks are in %d regions", len(items))
	}
	w.s.AddImage(gcpfake.Image{Name: "old", Family: "mine", Deprecated: "DEPRECATED"})
	w.s.AddImage(gcpfake.Image{Name: "a", Family: "mine", SizeGB: 20})
	w.s.AddImage(gcpfake.Image{Name: "b", Family: "mine"})
	w.s.AddImage(gcpfake.Image{Name: "c", Family: "mine", Deprecated: "OBSOLETE"})
	if got := w.get(root + "/global/images/family/mine"); got["name"] != "b" {
		t.Errorf("the newest that is not deprecated: %v", got["name"])
	}
}

func TestDisksAreMadeGrownAndDeleted(t *testing.T) {
	w := newWire(t, gcpfake.Options{Latency: quick})
	const disks = root + "/zones/us-central1-a/disks"
	w.run("POST", disks, `{"name":"d","sourceImage":"projects/debian-cloud/global/images/family/debian-13","type":"zones/us-central1-a/diskTypes/pd-ssd"}`)
	if code, _ := w.do("POST", disks+"/d/resize", `{"sizeGb":"10"}`); code != 400 {
		t.Errorf("grown to what it is: %d", code)
	}
	w.run("POST", disks+"/d/resize", `{"sizeGb":"12"}`)
	w.run("POST", instances, body("one", "disks", []any{doc{"boot": true, "source": "zones/us-central1-a/disks/d"}}))
	if code, _ := w.do("POST", instances, body("two", "disks", []any{doc{"boot": true, "source": "zones/us-central1-a/disks/d"}})); code != 400 {
		t.Errorf("a disk for two: %d", code)
	}
	w.run("DELETE", instances+"/one", "")
	if d := w.get(disks + "/d"); d["users"] != nil || d["sizeGb"] != "12" {
		t.Errorf("a disk without autoDelete: %v", d)
	}
	w.run("DELETE", disks+"/d", "")
}
