package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator"
)

// ask makes a request of the API until it is answered without an error.
func ask(t *testing.T, nc *nats.Conn, verb string, doc any, into any) {
	t.Helper()
	body, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	bustest.Eventually(t, verb, func() error {
		m, err := nc.Request("fleet.api."+verb, body, 5*time.Second)
		if err != nil {
			return err
		}
		if code := m.Header.Get(micro.ErrorCodeHeader); code != "" {
			return fmt.Errorf("%s: %s", code, m.Data)
		}
		if into == nil {
			return nil
		}
		return json.Unmarshal(m.Data, into)
	})
}

// Each stream is lost under a coordinator that leads. Made anew, nothing that runs was touched,
// and everything works as before.
func TestAFleetGoesOnWithAStreamThatWasMadeAnew(t *testing.T) {
	n := bus.Names{}
	for _, lost := range []string{n.Events(), n.LeaseStream(), n.States(), n.Intents(), n.Assignments()} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			f := &fleet{t: t, server: bustest.Start(t)}
			f.server.Bootstrap()
			nc, js := f.server.Connect("test")
			_, stop := f.coordinate("before")
			f.agent(t.TempDir())
			uids := map[string]string{}
			for _, name := range []string{"crawl-1", "crawl-2", "crawl-3"} {
				publish(t, f.server.URL(), name)
				uids[name] = running(t, f.server.URL(), name).UID
			}
			if err := js.DeleteStream(bustest.Context(t), lost); err != nil {
				t.Fatal(err)
			}
			stop()

			config := filepath.Join(t.TempDir(), "coordinator.yaml")
			if err := os.WriteFile(config, fmt.Appendf(nil, "nats: {url: %q}\n", f.server.URL()), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := (bootstrapCmd{configPath: configPath{config}, MaxHosts: 10, Remake: lost, Timeout: bustest.Deadline}).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			after, _ := f.coordinate("after")
			bustest.Eventually(t, "leading", func() error {
				if role := after.Role(); role != coordinator.Leading {
					return errors.New(role.String())
				}
				return nil
			})
			if lost == n.Assignments() {
				var recovered struct{ Adopted, Left []any }
				bustest.Eventually(t, "what the host has is known", func() error {
					var found struct{ Items []any }
					if ask(t, nc, "stranded", struct{}{}, &found); len(found.Items) != 3 {
						return fmt.Errorf("%d are stranded: %v", len(found.Items), found.Items)
					}
					return nil
				})
				if ask(t, nc, "recover", map[string]string{"reason": "made anew"}, &recovered); len(recovered.Adopted) != 3 || len(recovered.Left) != 0 {
					t.Errorf("got %+v", recovered)
				}
			}
			for name, uid := range uids {
				if now := running(t, f.server.URL(), name); now.UID != uid {
					t.Errorf("%s was made anew: %s, was %s", name, now.UID, uid)
				}
			}
			ask(t, nc, "apply", json.RawMessage(`{"name":"crawl-1","spec":{"auth":{"username":"u","password":"changed-1"},"allowFrom":["10.0.0.0/8"]}}`), nil)
			ask(t, nc, "delete", map[string]string{"proxy": "crawl-2"}, nil)
			ask(t, nc, "apply", json.RawMessage(`{"name":"crawl-4","spec":{"allowFrom":["10.0.0.0/8"]}}`), nil)
			running(t, f.server.URL(), "crawl-4")
			bustest.NoKey(t, js, n.Proxies(), "crawl-2")
			var shown coordinator.Described
			bustest.Eventually(t, "the changed credentials", func() error {
				ask(t, nc, "describe", map[string]string{"proxy": "crawl-1"}, &shown)
				var rec bus.Record
				raw, _ := json.Marshal(shown.Record)
				if err := json.Unmarshal(raw, &rec); err != nil || rec.Phase != bus.PhaseRunning || shown.Bound == nil || shown.Bound.Auth == nil || shown.Bound.Auth.Username != "u" {
					return fmt.Errorf("got %s, %v", raw, err)
				}
				return nil
			})
			if len(shown.Events) == 0 {
				t.Error("it has no events")
			}
		})
	}
}
