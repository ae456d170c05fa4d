//go:build real

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

const goodIntent = `{"name":"crawl-1","desired":"running","spec":{"auth":{"username":"crawler","password":"right"}}}`

// TestABadIntentChangesNothingThatRuns publishes what people get wrong, with the real CLI,
// over a proxy that runs.
func TestABadIntentChangesNothingThatRuns(t *testing.T) {
	f := newFleet(t, "always")
	f.startAgent("sim-1", simAgent)
	f.publish("crawl-1", goodIntent)
	before := f.awaitPhase("crawl-1", bus.PhaseRunning, 20*time.Second)

	for _, c := range []struct{ name, doc, field string }{
		{"an unknown field", `{"name":"crawl-1","spec":{"auth":{"username":"a","password":"secret-word"},"prot":3128}}`, "spec.prot"},
		{"a wrong type", `{"name":"crawl-1","spec":{"auth":{"username":"a","password":"secret-word"},"port":"3128"}}`, "spec.port"},
		{"another name than its subject", `{"name":"crawl-2","spec":{"auth":{"username":"a","password":"secret-word"}}}`, "name"},
		{"not JSON", `name: crawl-1`, ""},
		{"nothing that restricts clients", `{"name":"crawl-1"}`, "spec"},
		{"a client network that is none", `{"name":"crawl-1","spec":{"allowFrom":["10.0.0.0/33"]}}`, "spec.allowFrom[0]"},
		{"too much cloud-init", `{"name":"crawl-1","spec":{"allowFrom":["10.0.0.0/8"],"cloudInit":"` + strings.Repeat("x", bus.MaxUserDataBytes+1) + `"}}`, "spec.cloudInit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Large documents do not fit on a command line, so they go by the library.
			if len(c.doc) > 100_000 {
				if _, err := f.js.Publish(t.Context(), f.names.IntentProxy("crawl-1"), []byte(c.doc)); err != nil {
					t.Fatal(err)
				}
			} else {
				f.publish("crawl-1", c.doc)
			}
			r := f.await("crawl-1", 10*time.Second, "refused with field "+c.field, func(r bus.Record) bool {
				return !r.Accepted && r.Field == c.field && r.Reason != ""
			})
			if r.UID != before.UID || r.Generation != before.Generation || r.Phase != bus.PhaseRunning {
				t.Errorf("the proxy is %+v, was %+v", r, before)
			}
			if strings.Contains(fmt.Sprintf("%+v", r), "secret-word") {
				t.Errorf("the record has the password: %+v", r)
			}
			eventually(t, 5*time.Second, func() error {
				events := f.events(f.names.EventProxy("crawl-1"))
				if last := events[len(events)-1]; last.Seq != r.IntentSeq || last.Field != c.field || !strings.Contains(last.Message, r.Reason) {
					return fmt.Errorf("the last event is %+v, want field %q of intent %d, and why: %s", last, c.field, r.IntentSeq, r.Reason)
				}
				return nil
			})
		})
	}

	t.Run("a name that no subject can carry is refused by the API", func(t *testing.T) {
		out, _ := f.nats("req", f.names.API()+".apply", `{"name":"Crawl_1","spec":{"allowFrom":["10.0.0.0/8"]}}`)
		if !strings.Contains(out, `"name"`) || !strings.Contains(out, "DNS label") {
			t.Errorf("the API answers %s", out)
		}
	})

	f.publish("crawl-1", strings.Replace(goodIntent, "right", "other", 1))
	after := f.await("crawl-1", 20*time.Second, "accepted", func(r bus.Record) bool { return r.Accepted && r.Phase == bus.PhaseRunning })
	if after.Field != "" || after.Reason != "" {
		t.Errorf("the record still complains: %+v", after)
	}
	f.coordinator.stop()
}

// TestABootstrapAgainSaysWhatItDoesNotChange asks for three replicas of streams that have one.
func TestABootstrapAgainSaysWhatItDoesNotChange(t *testing.T) {
	f := newFleet(t, "")
	again := func(replicas string) string {
		return mustRun(t, program(t, "coordinator"), "bootstrap", "--config", filepath.Join(f.dir, "coordinator.yaml"), "--replicas", replicas)
	}
	if out := again("3"); !strings.Contains(out, "--replicas 1, not 3 as asked") {
		t.Errorf("got %q", out)
	}
	if out := again("1"); strings.Contains(out, "as asked") {
		t.Errorf("nothing differs: got %q", out)
	}
}
