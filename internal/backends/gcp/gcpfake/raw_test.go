package gcpfake_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"proxyfleet/internal/backends/gcp/gcpfake"
)

const (
	root      = "/compute/v1/projects/fleet-test"
	instances = root + "/zones/us-central1-a/instances"
)

// doc is a JSON object of an answer.
type doc = map[string]any

// wire sends plain requests, right and wrong ones, without a client in between.
type wire struct {
	t *testing.T
	s *gcpfake.Server
}

func newWire(t *testing.T, o gcpfake.Options) wire {
	t.Helper()
	o.InProcess = true
	return wire{t, gcpfake.New(t, o)}
}

func (w wire) try(method, path, body string) (int, doc, error) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.s.URL()+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.s.Client().Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	var out doc
	_ = json.Unmarshal(raw, &out) // what is no JSON is looked at as such
	return resp.StatusCode, out, nil
}

func (w wire) do(method, path, body string) (int, doc) {
	w.t.Helper()
	code, out, err := w.try(method, path, body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return code, out
}

func (w wire) get(path string) doc {
	w.t.Helper()
	code, out := w.do("GET", path, "")
	if code != 200 {
		w.t.Fatalf("GET %s: %d %v", path, code, out)
	}
	return out
}

// begin expects an operation.
func (w wire) begin(method, path, body string) doc {
	w.t.Helper()
	code, out := w.do(method, path, body)
	if code != 200 || out["kind"] != "compute#operation" {
		w.t.Fatalf("%s %s: %d %v", method, path, code, out)
	}
	return out
}

// wait follows an operation to its end and returns its errors' codes.
func (w wire) wait(op doc) (codes string) {
	w.t.Helper()
	link := op["selfLink"].(string)
	path := link[strings.Index(link, "/compute/"):]
	for op["status"] != "DONE" {
		var code int
		if code, op = w.do("POST", path+"/wait", ""); code != 200 {
			w.t.Fatalf("%s: %d %v", path, code, op)
		}
	}
	for i, e := range at[[]any](op, "error", "errors") {
		if i > 0 {
			codes += " "
		}
		codes += e.(doc)["code"].(string)
	}
	return codes
}

// run is begin and wait, and expects no errors.
func (w wire) run(method, path, body string) {
	w.t.Helper()
	if codes := w.wait(w.begin(method, path, body)); codes != "" {
		w.t.Fatalf("%s %s: %s", method, path, codes)
	}
}

// at reads a value in a document; what is missing is zero.
func at[T any](v any, path ...any) T {
	for _, p := range path {
		switch k := p.(type) {
		case string:
			o, _ := v.(doc)
			v = o[k]
		case int:
			l, _ := v.([]any)
			if k >= len(l) {
				var none T
				return none
			}
			v = l[k]
		}
	}
	out, _ := v.(T)
	return out
}

// body is a machine's request with some of its fields changed: "labels", {"a": "b"}; nil removes.
func body(name string, changes ...any) string {
	o := doc{
		"name": name, "machineType": "zones/us-central1-a/machineTypes/e2-small",
		"disks": []any{doc{"boot": true, "autoDelete": true, "initializeParams": doc{
			"sourceImage": "projects/debian-cloud/global/images/family/debian-13", "diskSizeGb": "10"}}},
		"networkInterfaces": []any{doc{"network": "global/networks/default", "accessConfigs": []any{doc{"type": "ONE_TO_ONE_NAT"}}}},
	}
	for i := 0; i < len(changes); i += 2 {
		if o[changes[i].(string)] = changes[i+1]; changes[i+1] == nil {
			delete(o, changes[i].(string))
		}
	}
	text, _ := json.Marshal(o)
	return string(text)
}

// inZone is the same for another zone.
func inZone(zone, body string) (path, text string) {
	return strings.ReplaceAll(instances, "us-central1-a", zone), strings.ReplaceAll(body, "us-central1-a", zone)
}
