package gcpfake_test

import (
	"fmt"
	"strings"
	"testing"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

func TestWhatGoogleWouldRefuseIsRefused(t *testing.T) {
	w := newWire(t, gcpfake.Options{})
	w.run("POST", instances, body("taken"))
	nic := func(fields doc) []any { return []any{fields} }
	disk := func(params doc) []any { return []any{doc{"boot": true, "initializeParams": params}} }
	const family = "projects/debian-cloud/global/images/family/debian-13"
	for _, c := range []struct {
		what, method, path, body string
		code                     int
		reason, message          string
	}{
		{"an unknown query parameter", "GET", instances + "?colour=red", "", 400, "invalid", `Unknown name "colour": Cannot bind query parameter`},
		{"a number that is none", "GET", instances + "?maxResults=many", "", 400, "invalid", "Invalid value at 'maxResults'"},
		{"a page beyond the limit", "GET", instances + "?maxResults=501", "", 400, "invalid", "[0, 500]"},
		{"a page token of nobody", "GET", instances + "?pageToken=abc", "", 400, "invalid", "Invalid value for field 'pageToken'"},
		{"an order that is not offered", "GET", instances + "?orderBy=size", "", 400, "invalid", "orderBy"},
		{"a name in the path that cannot be", "GET", instances + "/Bad_Name", "", 400, "invalid", "Invalid value for field 'instance': 'Bad_Name'. Must be a match of regex"},
		{"an unknown zone", "GET", root + "/zones/mars-1-a/instances", "", 400, "invalid", "Invalid value for field 'zone': 'mars-1-a'. Unknown zone."},
		{"an unknown project", "GET", "/compute/v1/projects/not-mine/zones", "", 404, "notFound", "'projects/not-mine' was not found"},
		{"a body where none belongs", "DELETE", instances + "/taken", `{"a":1}`, 400, "badRequest", "must be empty"},
		{"no body", "POST", instances, "", 400, "required", "Required field 'resource' not specified"},
		{"half a body", "POST", instances, `{"name": "x"`, 400, "parseError", "Invalid JSON payload received"},
		{"two bodies", "POST", instances, body("x") + body("y"), 400, "parseError", "Invalid JSON payload received"},
		{"a list as body", "POST", instances, `[]`, 400, "invalid", "Invalid value at 'resource'"},
		{"an unknown field", "POST", instances, body("x", "colour", "red"), 400, "invalid", `Unknown name "colour": Cannot find field`},
		{"an unknown field further down", "POST", instances, body("x", "scheduling", doc{"spot": true}), 400, "invalid", `Unknown name "spot" at 'scheduling': Cannot find field`},
		{"a field that is no object", "POST", instances, body("x", "scheduling", "SPOT"), 400, "invalid", "Invalid value at 'resource.scheduling'"},
		{"a word that the enum lacks", "POST", instances, body("x", "scheduling", doc{"provisioningModel": "CHEAP"}), 400, "invalid", `"CHEAP"`},
		{"a boolean that is none", "POST", instances, body("x", "canIpForward", "maybe"), 400, "invalid", "Invalid value at 'resource.canIpForward'"},
		{"a number with a fraction", "POST", instances, body("x", "disks", disk(doc{"sourceImage": family, "diskSizeGb": "10.5"})), 400, "invalid", "diskSizeGb"},
		{"a name that cannot be", "POST", instances, body("Upper"), 400, "invalid", "Invalid value for field 'resource.name': 'Upper'. Must be a match of regex '[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?'"},
		{"no name", "POST", instances, body("x", "name", nil), 400, "required", "Required field 'resource.name' not specified"},
		{"no machine type", "POST", instances, body("x", "machineType", nil), 400, "required", "machineType"},
		{"an unknown machine type", "POST", instances, body("x", "machineType", "zones/us-central1-a/machineTypes/huge"), 400, "invalid", "The referenced resource does not exist"},
		{"another zone's machine type", "POST", instances, body("x", "machineType", "zones/us-central1-b/machineTypes/e2-small"), 400, "invalid", "machineType"},
		{"no disk", "POST", instances, body("x", "disks", nil), 400, "invalid", "boot disk"},
		{"no image", "POST", instances, body("x", "disks", disk(doc{"diskSizeGb": "10"})), 400, "required", "sourceImage"},
		{"an unknown image", "POST", instances, body("x", "disks", disk(doc{"sourceImage": "projects/debian-cloud/global/images/debian-1"})), 400, "invalid", "The referenced image resource cannot be found."},
		{"a disk smaller than its image", "POST", instances, body("x", "disks", disk(doc{"sourceImage": family, "diskSizeGb": "5"})), 400, "invalid", "cannot be smaller than the image size (10 GB)"},
		{"an unknown disk type", "POST", instances, body("x", "disks", disk(doc{"sourceImage": family, "diskType": "zones/us-central1-a/diskTypes/floppy"})), 400, "invalid", "diskType"},
		{"a disk name that is taken", "POST", instances, body("x", "disks", disk(doc{"sourceImage": family, "diskName": "taken"})), 409, "alreadyExists", "disks/taken' already exists"},
		{"a name that is taken", "POST", instances, body("taken"), 409, "alreadyExists", "The resource 'projects/fleet-test/zones/us-central1-a/instances/taken' already exists"},
		{"no network interface", "POST", instances, body("x", "networkInterfaces", nil), 400, "invalid", "At least one network interface"},
		{"an unknown network", "POST", instances, body("x", "networkInterfaces", nic(doc{"network": "global/networks/lost"})), 400, "invalid", "network"},
		{"an unknown subnetwork", "POST", instances, body("x", "networkInterfaces", nic(doc{"subnetwork": "regions/us-central1/subnetworks/lost"})), 400, "invalid", "subnetwork"},
		{"a subnetwork elsewhere", "POST", instances, body("x", "networkInterfaces", nic(doc{"subnetwork": "regions/europe-west1/subnetworks/default"})), 400, "invalid", "not in the region"},
		{"IPv6 where the subnetwork has none", "POST", instances, body("x", "networkInterfaces", nic(doc{"stackType": "IPV4_IPV6"})), 400, "invalid", "stack type"},
		{"an address that is not reserved", "POST", instances, body("x", "networkInterfaces", nic(doc{"accessConfigs": []any{doc{"natIP": "192.0.2.1"}}})), 400, "invalid", "'192.0.2.1' was not found in region 'us-central1'"},
		{"a label in capitals", "POST", instances, body("x", "labels", doc{"Key": "v"}), 400, "invalid", "Label key 'Key' violates format constraints"},
		{"a label that is too long", "POST", instances, body("x", "labels", doc{"k": strings.Repeat("v", 64)}), 400, "invalid", "violates format constraints"},
		{"a tag that cannot be", "POST", instances, body("x", "tags", doc{"items": []string{"no_underscore"}}), 400, "invalid", "resource.tags.items[0]"},
		{"metadata with a key twice", "POST", instances, body("x", "metadata", doc{"items": []any{doc{"key": "a", "value": "1"}, doc{"key": "a", "value": "2"}}}), 400, "invalid", "Duplicate metadata key: a"},
		{"metadata without a value", "POST", instances, body("x", "metadata", doc{"items": []any{doc{"key": "a"}}}), 400, "required", "value"},
		{"metadata that is too large", "POST", instances, body("x", "metadata", doc{"items": []any{doc{"key": "a", "value": strings.Repeat("x", 256<<10+1)}}}), 413, "uploadTooLarge", "maximum size 262144"},
		{"a termination action without Spot", "POST", instances, body("x", "scheduling", doc{"instanceTerminationAction": "DELETE"}), 400, "invalid", "instanceTerminationAction"},
		{"a Spot machine that restarts", "POST", instances, body("x", "scheduling", doc{"provisioningModel": "SPOT", "automaticRestart": true}), 400, "invalid", "automaticRestart"},
		{"a requestId that is no UUID", "POST", instances + "?requestId=once", body("x"), 400, "invalid", "Invalid value for field 'requestId'"},
		{"the zero requestId", "POST", instances + "?requestId=00000000-0000-0000-0000-000000000000", body("x"), 400, "invalid", "requestId"},
		{"a firewall rule without name", "POST", root + "/global/firewalls", `{"allowed":[{"IPProtocol":"tcp"}]}`, 400, "required", "resource.name"},
		{"a firewall rule that allows nothing", "POST", root + "/global/firewalls", `{"name":"f"}`, 400, "invalid", "exactly one of allowed or denied"},
		{"a range with bits beyond its mask", "POST", root + "/global/firewalls", `{"name":"f","sourceRanges":["10.0.0.1/8"],"allowed":[{"IPProtocol":"tcp"}]}`, 400, "invalid", "sourceRanges[0]"},
		{"ranges of both families", "POST", root + "/global/firewalls", `{"name":"f","sourceRanges":["10.0.0.0/8","2001:db8::/32"],"allowed":[{"IPProtocol":"tcp"}]}`, 400, "invalid", "cannot be mixed"},
		{"a port that is none", "POST", root + "/global/firewalls", `{"name":"f","allowed":[{"IPProtocol":"tcp","ports":["http"]}]}`, 400, "invalid", "ports[0]"},
		{"a disk in use", "DELETE", root + "/zones/us-central1-a/disks/taken", "", 400, "resourceInUseByAnotherResource", "is already being used by 'projects/fleet-test/zones/us-central1-a/instances/taken'"},
		{"a machine that is not there", "GET", instances + "/gone", "", 404, "notFound", "The resource 'projects/fleet-test/zones/us-central1-a/instances/gone' was not found"},
		{"an operation that is not there", "GET", root + "/zones/us-central1-a/operations/gone", "", 404, "notFound", "operations/gone' was not found"},
		{"a family without images", "GET", root + "/global/images/family/none", "", 404, "notFound", "family/none' was not found"},
		{"a permission that is none", "POST", "/v3/projects/fleet-test:testIamPermissions", `{"permissions":["compute.*"]}`, 400, "badRequest", "compute.*"},
	} {
		code, out := w.do(c.method, c.path, c.body)
		message, reason := at[string](out, "error", "message"), at[string](out, "error", "errors", 0, "reason")
		if code != c.code || reason != c.reason || !strings.Contains(message, c.message) {
			t.Errorf("%s: %d %s %q, want %d %s with %q", c.what, code, reason, message, c.code, c.reason, c.message)
		}
		if at[float64](out, "error", "code") != float64(code) || at[string](out, "error", "errors", 0, "message") != message {
			t.Errorf("%s: the error contradicts itself: %v", c.what, out)
		}
	}
	if made := w.s.Keys("instances"); len(made) != 1 {
		t.Errorf("refused and made all the same: %v", made)
	}
}

func TestWhatAClientMaySendIsTaken(t *testing.T) {
	w := newWire(t, gcpfake.Options{})
	for i, b := range []string{
		body("x"),
		body("x", "kind", "mine", "id", "1", "status", "TERMINATED", "selfLink", "http://elsewhere", "satisfiesPzi", true), // read-only
		body("x", "machineType", "https://www.googleapis.com/compute/v1/projects/fleet-test/zones/us-central1-a/machineTypes/e2-small"),
		body("x", "machineType", "https://compute.googleapis.com/compute/v1/projects/fleet-test/zones/us-central1-a/machineTypes/e2-small"),
		strings.Replace(body("x"), `"diskSizeGb":"10"`, `"diskSizeGb":10`, 1),
		strings.Replace(body("x"), `"boot":true`, `"boot":"true"`, 1),
	} {
		name := fmt.Sprintf("x%d", i)
		w.run("POST", instances+"?alt=json&prettyPrint=false", strings.Replace(b, `"name":"x"`, `"name":"`+name+`"`, 1))
		if got := w.get(instances + "/" + name); got["status"] != "RUNNING" || got["kind"] != "compute#instance" || got["satisfiesPzi"] != nil {
			t.Errorf("%d: %v", i, got)
		}
	}
}

// silentTB takes the errors of a server without failing.
type silentTB struct {
	testing.TB
	errors []string
}

func (s *silentTB) Errorf(format string, args ...any) {
	s.errors = append(s.errors, fmt.Sprintf(format, args...))
}

func TestAPathThatIsNotModelledFailsTheTest(t *testing.T) {
	tb := &silentTB{TB: t}
	w := wire{t, gcpfake.New(tb, gcpfake.Options{InProcess: true})}
	if code, _ := w.do("GET", root+"/zones/us-central1-a/reservations", ""); code != 404 {
		t.Errorf("status %d", code)
	}
	if code, _ := w.do("PUT", instances, "{}"); code != 405 {
		t.Errorf("another HTTP method: status %d", code)
	}
	if len(tb.errors) != 1 || !strings.Contains(tb.errors[0], "reservations") {
		t.Errorf("errors: %q", tb.errors)
	}
}
