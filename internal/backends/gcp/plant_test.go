package gcp

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/gcp/gcpfake"
)

// call is what another client of the same project does.
func call(t testing.TB, s *gcpfake.Server, method, path string, body map[string]any) map[string]any {
	t.Helper()
	raw, _ := json.Marshal(body)
	req, err := http.NewRequest(method, s.URL()+"/compute/v1/projects/"+s.Project()+"/"+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if body == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, path, text)
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// done calls and waits for the operation's end.
func done(t testing.TB, s *gcpfake.Server, method, path string, body map[string]any) {
	t.Helper()
	op := call(t, s, method, path, body)
	_, link, _ := strings.Cut(op["selfLink"].(string), "/projects/"+s.Project()+"/")
	if op = call(t, s, "POST", link+"/wait", nil); op["status"] != "DONE" || op["error"] != nil {
		t.Fatalf("%s %s: %v", method, path, op)
	}
}

// plant puts a thing in us-central1 under the name that a uid gives, with the mark that it is to carry.
func plant(collection string) backendtest.Plant { return plantIn("us-central1-b", collection) }

// plantIn is plant for one zone.
func plantIn(zone, collection string) backendtest.Plant {
	place := map[string]string{"instances": "zones/" + zone + "/instances", "disks": "zones/" + zone + "/disks", "addresses": "regions/us-central1/addresses", "firewalls": "global/firewalls"}[collection]
	return func(t testing.TB, host string, ref backends.Ref, m backends.Mark) func() string {
		s := serverOf(host)
		body := map[string]any{"name": backends.InstanceName(ref.UID)}
		labels, description := map[string]string{}, "somebody's"
		if m != (backends.Mark{}) {
			labels, description = markLabels(m), describe(m)
		}
		const image = "projects/debian-cloud/global/images/family/debian-13"
		switch collection {
		case "instances":
			body["labels"], body["machineType"] = labels, "zones/"+zone+"/machineTypes/e2-small"
			body["networkInterfaces"] = []any{map[string]any{"network": "global/networks/default"}}
			body["disks"] = []any{map[string]any{"boot": true, "autoDelete": true, "initializeParams": map[string]any{"sourceImage": image, "labels": labels}}}
		case "disks":
			body["labels"], body["sourceImage"] = labels, image
		case "addresses":
			body["description"] = description
		case "firewalls":
			body["description"], body["allowed"] = description, []any{map[string]any{"IPProtocol": "tcp", "ports": []string{"22"}}}
		}
		done(t, s, "POST", place, body)
		key := "projects/" + s.Project() + "/" + place + "/" + backends.InstanceName(ref.UID)
		t.Cleanup(func() {
			if s.Document(key) != nil {
				done(t, s, "DELETE", place+"/"+backends.InstanceName(ref.UID), nil)
			}
		})
		return func() string {
			text, _ := json.Marshal(s.Document(key))
			return string(text)
		}
	}
}
