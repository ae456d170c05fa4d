package gcpfake_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

func TestAMachinesMetadataServerTellsItsAddressesAndWaitsForChanges(t *testing.T) {
	s := gcpfake.New(t, gcpfake.Options{})
	c := newClient(t, s)
	c.mustInsert(machine("one"))
	ask := func(query, flavor string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://169.254.169.254/computeMetadata/v1/instance/network-interfaces/?"+query, nil)
		r.Header.Set("Metadata-Flavor", flavor)
		w := httptest.NewRecorder()
		s.Metadata(zone, "one").ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, _ := ask("recursive=true", ""); code != http.StatusForbidden {
		t.Errorf("a request without the header, as a proxy's client may have one sent, is answered %d", code)
	}
	ip := s.Instances()[0].ExternalIP
	if code, told := ask("recursive=true", "Google"); code != http.StatusOK || !strings.Contains(told, `"externalIp":"`+ip+`"`) {
		t.Errorf("%d %s, want %s in it", code, told, ip)
	}
	if _, told := ask("recursive=true&wait_for_change=true&timeout_sec=1", "Google"); !strings.Contains(told, ip) {
		t.Errorf("nothing changes, and the answer is %s", told)
	}
	answers := make(chan string)
	go func() {
		_, told := ask("recursive=true&wait_for_change=true&timeout_sec=600", "Google")
		answers <- told
	}()
	key := "projects/" + s.Project() + "/zones/" + zone + "/instances/one"
	for told, n := "", 0; told == ""; n++ { // once the request waits, the next change is what it waits for
		s.Edit(key, func(doc map[string]any) {
			nic := doc["networkInterfaces"].([]any)[0].(map[string]any)
			nic["accessConfigs"].([]any)[0].(map[string]any)["natIP"] = fmt.Sprintf("203.0.113.%d", n%250)
		})
		select {
		case told = <-answers:
			if !strings.Contains(told, "203.0.113.") {
				t.Errorf("it was told %s", told)
			}
		default:
		}
	}
}
