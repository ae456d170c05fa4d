package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// fleet is a whole installation on this machine: a nats-server, a coordinator and agents,
// each a process of its own.
type fleet struct {
	t     testing.TB
	dir   string
	names bus.Names
	url   string
	port  int
	sync  string // sync_interval of the server

	server      *proc
	coordinator *proc
	js          jetstream.JetStream // of the test, for looking
}

// newFleet starts a nats-server and a coordinator over a new installation. sync is the
// server's sync_interval; empty is its default.
func newFleet(t testing.TB, sync string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), port: freePort(t), sync: sync}
	f.url = fmt.Sprintf("nats://127.0.0.1:%d", f.port)
	f.startNATS()
	nc, err := nats.Connect(f.url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if f.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	mustRun(t, program(t, "coordinator"), "bootstrap", "--config", f.file("coordinator.yaml", "nats: {url: '"+f.url+"'}\n"))
	f.startCoordinator()
	return f
}

// in is the same fleet for a subtest: what that starts ends with it.
func (f *fleet) in(t testing.TB) *fleet {
	g := *f
	g.t = t
	return &g
}

func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// file writes a file of the fleet's directory and returns its path.
func (f *fleet) file(name, content string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func (f *fleet) startNATS() {
	f.t.Helper()
	conf := fmt.Sprintf("host: 127.0.0.1\nport: %d\njetstream: {store_dir: %q", f.port, filepath.Join(f.dir, "nats"))
	if f.sync != "" {
		conf += ", sync_interval: " + f.sync
	}
	f.server = start(f.t, nil, tool(f.t, "PROXYFLEET_NATS_SERVER"), "-c", f.file("nats.conf", conf+"}\n"))
	eventually(f.t, 20*time.Second, func() error {
		c, err := net.Dial("tcp", f.url[len("nats://"):])
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

func (f *fleet) startCoordinator() {
	f.coordinator = start(f.t, nil, program(f.t, "coordinator"), "run", "--config", filepath.Join(f.dir, "coordinator.yaml"))
}

// startAgent runs the agent of a host with the given agent.yaml, to which host, nats and
// stateDir are added. env may name a step to be killed at.
func (f *fleet) startAgent(host, yaml string, env ...string) *proc {
	f.t.Helper()
	return f.runAgent("agent-host", host, yaml, env)
}

// startCloudAgent is startAgent with the program that has every backend.
func (f *fleet) startCloudAgent(host, yaml string, env ...string) *proc {
	f.t.Helper()
	return f.runAgent("agent", host, yaml, env)
}

func (f *fleet) runAgent(name, host, yaml string, env []string) *proc {
	f.t.Helper()
	head := fmt.Sprintf("host: {name: %s}\nnats: {url: '%s'}\nstateDir: '%s'\n", host, f.url, filepath.Join(f.dir, host))
	return start(f.t, env, program(f.t, name), "run", "--config", f.file(host+".yaml", head+yaml))
}

// nats runs the nats CLI against the fleet.
func (f *fleet) nats(args ...string) (string, error) {
	f.t.Helper()
	return run(f.t, tool(f.t, "PROXYFLEET_NATS_CLI"), append([]string{"--server", f.url, "--no-context"}, args...)...)
}

// publish publishes an intent as a person does.
func (f *fleet) publish(proxy, doc string) {
	f.t.Helper()
	if out, err := f.nats("pub", "-J", "--no-templates", f.names.IntentProxy(proxy), doc); err != nil {
		f.t.Fatalf("%v\n%s", err, out)
	}
}

// record reads a proxy's record from the inventory; ok is false while there is none.
func (f *fleet) record(proxy string) (r bus.Record, ok bool, err error) {
	ok, err = f.get(f.names.Proxies(), proxy, &r)
	return r, ok, err
}

func (f *fleet) get(bucket, key string, into any) (bool, error) {
	kv, err := f.js.KeyValue(f.t.Context(), bucket)
	if err != nil {
		return false, err
	}
	e, err := kv.Get(f.t.Context(), key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(e.Value(), into)
}

// await waits until a proxy's record is as wanted, and returns it.
func (f *fleet) await(proxy string, within time.Duration, what string, wanted func(bus.Record) bool) bus.Record {
	f.t.Helper()
	var last bus.Record
	eventually(f.t, within, func() error {
		r, ok, err := f.record(proxy)
		if err != nil {
			return err
		}
		last = r
		if !ok || !wanted(r) {
			return fmt.Errorf("proxy %s is not %s: %+v (error %+v)", proxy, what, r, r.Error)
		}
		return nil
	})
	return last
}

// awaitPhase is await for a phase.
func (f *fleet) awaitPhase(proxy string, phase bus.Phase, within time.Duration) bus.Record {
	f.t.Helper()
	return f.await(proxy, within, string(phase), func(r bus.Record) bool { return r.Accepted && r.Phase == phase })
}

// removeAll asks for the end of proxies, all at once, and waits until nothing is left of each.
func (f *fleet) removeAll(within time.Duration, proxies ...string) {
	f.t.Helper()
	for _, p := range proxies {
		f.publish(p, `{"name":"`+p+`","desired":"absent"}`)
	}
	for _, p := range proxies {
		f.awaitNoTrace(p, within)
	}
}

// awaitNoTrace waits until the bus knows nothing of a proxy that is in force: no record, no
// endpoint, no assignment, no state. The markers that end what a subject held have no body.
func (f *fleet) awaitNoTrace(proxy string, within time.Duration) {
	f.t.Helper()
	eventually(f.t, within, func() error {
		if r, ok, err := f.record(proxy); err != nil || ok {
			return fmt.Errorf("record %+v, %w", r, err)
		}
		var e bus.Endpoint
		if ok, err := f.get(f.names.Endpoints(), "_."+proxy, &e); err != nil || ok {
			return fmt.Errorf("endpoint %+v, %w", e, err)
		}
		for stream, subject := range map[string]string{
			f.names.Assignments(): f.names.Assign("*", proxy, "*"),
			f.names.States():      f.names.StateProxy("*", proxy, "*"),
		} {
			s, err := f.js.Stream(f.t.Context(), stream)
			if err != nil {
				return err
			}
			info, err := s.Info(f.t.Context(), jetstream.WithSubjectFilter(subject))
			if err != nil {
				return err
			}
			for subject := range info.State.Subjects {
				m, err := s.GetLastMsgForSubject(f.t.Context(), subject)
				if errors.Is(err, jetstream.ErrMsgNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				if len(m.Data) > 0 {
					return fmt.Errorf("%s still holds %s: %s", stream, subject, m.Data)
				}
			}
		}
		return nil
	})
}

// events returns a subject's events, in order.
func (f *fleet) events(subject string) []bus.Event {
	f.t.Helper()
	cons, err := f.js.OrderedConsumer(f.t.Context(), f.names.Events(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{subject}})
	if err != nil {
		f.t.Fatal(err)
	}
	batch, err := cons.FetchNoWait(1000)
	if err != nil {
		f.t.Fatal(err)
	}
	var out []bus.Event
	for m := range batch.Messages() {
		var e bus.Event
		if err := json.Unmarshal(m.Data(), &e); err != nil {
			f.t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}
