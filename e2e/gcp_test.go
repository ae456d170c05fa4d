//go:build real

package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends/gcp/gcpfake"
	"proxyfleet/internal/bus"
)

// computeEngine is a simulated project whose agent has the role that docs/gcp.md gives it, and
// no right beyond.
func computeEngine(t *testing.T) *gcpfake.Server {
	t.Helper()
	doc, err := os.ReadFile("../docs/gcp.md")
	if err != nil {
		t.Fatal(err)
	}
	var permissions []string
	for _, m := range regexp.MustCompile(`(?m)^ *- (compute\.[a-zA-Z.]+)$`).FindAllStringSubmatch(string(doc), -1) {
		permissions = append(permissions, m[1])
	}
	s := gcpfake.New(t, gcpfake.Options{Latency: 200 * time.Millisecond})
	s.AllowOnly(permissions...)
	return s
}

// startGCP starts an agent for the project; its key is that of a service account.
func (f *fleet) startGCP(s *gcpfake.Server, key string, env ...string) *proc {
	f.t.Helper()
	return f.startCloudAgent("gcp", fmt.Sprintf(`backend:
  type: gcp
  project: %s
  zones: [us-central1-a, us-central1-b]
  credentialsFile: %s
  endpoints: {compute: '%s', resourceManager: '%s'}
images: {ubuntu: {family: projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64}}
machineTypes: {small: {name: e2-small}, cheap: {name: e2-small, spot: true}}
defaults: {image: ubuntu, machineType: small, diskGiB: 10}
probe: {disabled: true}
log: {level: debug}
`, s.Project(), key, s.URL(), s.URL()), env...)
}

// leftInProject are the things in a project that an agent may have made.
func leftInProject(s *gcpfake.Server) []string {
	return slices.Concat(s.Keys("instances"), s.Keys("disks"), s.Keys("addresses"), s.Keys("firewalls"))
}

// TestAComputeEngineInstanceFromIntentToDeletion is the whole way on a simulated Google Cloud
// project, which refuses what the API's discovery document refuses. The first zone has no room.
func TestAComputeEngineInstanceFromIntentToDeletion(t *testing.T) {
	s := computeEngine(t)
	s.StockOut("us-central1-a", "us-central1-b")
	f := newFleet(t, "always")
	const password, document = "a-word-that-nobody-logs", "#cloud-config\n# a document that nobody logs\n"
	key := s.ServiceAccountKey()
	a := f.startGCP(s, f.file("key.json", string(key)))

	f.publish("crawl-1", `{"name":"crawl-1","spec":{"auth":{"username":"crawler","password":"`+password+`"},"allowFrom":["198.51.100.0/24"],"cloudInit":`+fmt.Sprintf("%q", document)+`}}`)
	r := f.awaitPhase("crawl-1", bus.PhaseRunning, 90*time.Second)
	made := s.Instances()
	if len(made) != 1 || made[0].Zone != "us-central1-b" || len(r.Addresses) == 0 || r.Addresses[0].Address != made[0].ExternalIP {
		t.Fatalf("the record says %+v, the project has %+v", r.Addresses, made)
	}
	rules := s.Keys("firewalls")
	if len(rules) != 1 || fmt.Sprint(s.Document(rules[0])["sourceRanges"]) != "[198.51.100.0/24]" {
		t.Errorf("firewall rules: %v", rules)
	}
	if !strings.Contains(made[0].Metadata["user-data"], base64.StdEncoding.EncodeToString([]byte(document))) {
		t.Errorf("the instance got the user-data %q", made[0].Metadata["user-data"])
	}

	f.publish("crawl-1", `{"name":"crawl-1","desired":"absent"}`)
	f.awaitNoTrace("crawl-1", 90*time.Second)
	if things := leftInProject(s); len(things) > 0 {
		t.Errorf("left in the project: %v", things)
	}
	a.stop()
	secrets := map[string]string{"password": password, "user-data": "a document that nobody logs", "private key": "PRIVATE KEY"}
	for _, req := range s.Requests() {
		if token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer "); ok {
			secrets["token"] = token
		}
		if strings.Contains(req.Body, password) {
			t.Errorf("%s carries the password in the clear", req.Method)
		}
	}
	for what, text := range secrets {
		if strings.Contains(a.output(), text) || strings.Contains(f.coordinator.output(), text) {
			t.Errorf("the %s was logged", what)
		}
	}
}

// TestAnAgentThatDiesWhileComputeEngineWorksMakesNoSecondInstance kills the agent between the
// insert and the operation's end, and while it deletes.
func TestAnAgentThatDiesWhileComputeEngineWorksMakesNoSecondInstance(t *testing.T) {
	s := computeEngine(t)
	f := newFleet(t, "always")
	key := f.file("key.json", string(s.ServiceAccountKey()))
	asked := func(method string) func() error {
		return func() error {
			if s.Count(method) == 0 {
				return fmt.Errorf("no %s yet", method)
			}
			return nil
		}
	}

	release := s.HoldOperations()
	a := f.startGCP(s, key)
	f.publish("crawl-1", `{"name":"crawl-1","spec":{"auth":{"username":"crawler","password":"secret"}}}`)
	eventually(t, 60*time.Second, asked("compute.instances.insert"))
	a.kill()
	release()
	a = f.startGCP(s, key)
	f.awaitPhase("crawl-1", bus.PhaseRunning, 90*time.Second)
	if made := s.Instances(); len(made) != 1 {
		t.Errorf("instances: %+v", made)
	}

	release = s.HoldOperations()
	f.publish("crawl-1", `{"name":"crawl-1","desired":"absent"}`)
	eventually(t, 60*time.Second, asked("compute.instances.delete"))
	a.kill()
	release()
	f.startGCP(s, key)
	f.awaitNoTrace("crawl-1", 90*time.Second)
	if things := leftInProject(s); len(things) > 0 {
		t.Errorf("left in the project: %v", things)
	}
}

// TestASpotInstanceThatWasTakenAwayIsMadeAgain also shows that what is left of it goes.
func TestASpotInstanceThatWasTakenAwayIsMadeAgain(t *testing.T) {
	s := computeEngine(t)
	f := newFleet(t, "always")
	f.startGCP(s, f.file("key.json", string(s.ServiceAccountKey())))
	f.publish("crawl-1", `{"name":"crawl-1","spec":{"auth":{"username":"crawler","password":"secret"},"machineType":"cheap"}}`)
	f.awaitPhase("crawl-1", bus.PhaseRunning, 90*time.Second)
	first := s.Instances()[0]
	if !first.Spot {
		t.Fatalf("made: %+v", first)
	}
	s.Preempt(first.Zone, first.Name)
	eventually(t, 120*time.Second, func() error {
		made := s.Instances()
		if len(made) != 1 || made[0].Status != "RUNNING" || made[0].Document["id"] == first.Document["id"] {
			return fmt.Errorf("%+v", made)
		}
		return nil
	})
	if disks := s.Keys("disks"); len(disks) != 1 {
		t.Errorf("disks: %v", disks)
	}
}
