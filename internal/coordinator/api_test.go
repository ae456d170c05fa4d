package coordinator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/coordinator"
)

// info asks the service about itself, as `nats micro info` does.
func (r *rig) info() (info micro.Info) {
	r.t.Helper()
	bustest.Eventually(r.t, "the service", func() error {
		msg, err := r.nc.Request("$SRV.INFO.fleet-api", nil, time.Second)
		if err != nil {
			return err
		}
		return json.Unmarshal(msg.Data, &info)
	})
	return info
}

func TestEveryVerbSaysWhatItDoesAndTakesItsOwnExample(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	r.host("kvm-1")
	info := r.info()
	if info.Description == "" || info.Metadata["installation"] == "" || info.Metadata["term"] != "1" {
		t.Errorf("got %+v", info)
	}
	if len(info.Endpoints) < 20 {
		t.Fatalf("%d endpoints only", len(info.Endpoints))
	}
	for _, e := range info.Endpoints {
		if e.Subject != "fleet.api."+e.Name || e.QueueGroup != "term-1" {
			t.Errorf("%s: subject %s, queue group %s", e.Name, e.Subject, e.QueueGroup)
		}
		for _, key := range []string{"description", "request", "response"} {
			if e.Metadata[key] == "" {
				t.Errorf("%s has no %s", e.Name, key)
			}
		}
		var bad struct{ Code, Field, Message string }
		switch code := r.ask(e.Name, e.Metadata["request"], nil); code {
		case "", "NotFound", "NotLost", "NotDrained", "NotAMember", "FixedSize", "NotFrozen", "Invalid":
		default:
			t.Errorf("%s refuses its own example %s: %s %+v", e.Name, e.Metadata["request"], code, bad)
		}
		if e.Name == "list" && !strings.Contains(e.Metadata["description"], "no labels of their own") {
			t.Errorf("it leaves open whose labels are meant: %s", e.Metadata["description"])
		}
		if e.Name == "apply" {
			continue // it has a document of its own
		}
		if code := r.ask(e.Name, `{"nonsense": 1}`, &bad); code != "UnknownField" || bad.Field != "nonsense" {
			t.Errorf("%s takes what it does not know: %s %+v", e.Name, code, bad)
		}
	}
}

func names(t *testing.T, l coordinator.Listing) (out []string) {
	t.Helper()
	for _, item := range l.Items {
		rec, err := bus.Decode[bus.Record](item)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rec.Proxy)
	}
	return out
}

func TestProxiesAreListedByWhatIsAskedFor(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	r.hostIn("kvm-1", "eu-1", map[string]string{"rack": "a"})
	r.hostIn("kvm-2", "eu-2", nil)
	for name, host := range map[string]string{"a": "kvm-1", "b": "kvm-2", "c": "kvm-2"} {
		r.ask("apply", fmt.Sprintf(`{"name":%q,"spec":{"allowFrom":["10.0.0.0/8"],"placement":{"host":%q}}}`, name, host), nil)
		r.record(name, phase(bus.PhaseRunning))
	}
	r.ask("apply", `{"name":"d","desired":"stopped","spec":{"allowFrom":["10.0.0.0/8"],"placement":{"host":"kvm-1"}}}`, nil)
	r.record("d", phase(bus.PhaseStopped))
	r.publish("b", []byte(`{}`))
	r.record("b", func(rec bus.Record) error {
		if rec.Accepted {
			return fmt.Errorf("still accepted")
		}
		return nil
	})
	if code := r.ask("apply", `{"name":"crawl","size":2,"template":{"allowFrom":["10.0.0.0/8"],"placement":{"host":"kvm-1"}}}`, nil); code != "" {
		t.Fatal(code)
	}
	r.record("crawl-2", phase(bus.PhaseRunning))
	for _, c := range []struct {
		match string
		want  []string
	}{
		{``, []string{"a", "b", "c", "crawl-1", "crawl-2", "d"}},
		{`{"host":"kvm-2"}`, []string{"b", "c"}},
		{`{"zone":"eu-1"}`, []string{"a", "crawl-1", "crawl-2", "d"}},
		{`{"labels":{"rack":"a"},"phase":"Running"}`, []string{"a", "crawl-1", "crawl-2"}},
		{`{"labels":{"rack":"b"}}`, nil},
		{`{"phase":"Stopped"}`, []string{"d"}},
		{`{"accepted":false}`, []string{"b"}},
		{`{"pool":"crawl"}`, []string{"crawl-1", "crawl-2"}},
		{`{"zone":"eu-1","after":"a","limit":2}`, []string{"crawl-1", "crawl-2"}},
	} {
		var l coordinator.Listing
		if code := r.ask("list", c.match, &l); code != "" {
			t.Errorf("%s: %s", c.match, code)
		}
		if got := names(t, l); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.match, got, c.want)
		}
		if next := l.Next != ""; next != strings.Contains(c.match, "limit") {
			t.Errorf("%s: next page %q", c.match, l.Next)
		}
	}
}

func TestAPoolIsAppliedScaledRotatedAndDeletedByRequests(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	r.host("kvm-1")
	var bad struct{ Code, Field, Message string }
	if code := r.ask("apply", `{"name":"crawl","min":1,"template":{"allowFrom":["10.0.0.0/8"]}}`, &bad); code == "" {
		t.Error("a pool without max was taken")
	}
	if r.ask("apply", `{"name":"crawl","size":3}`, &bad); bad.Code != "Missing" || bad.Field != "template" {
		t.Errorf("a pool without a template: %+v", bad)
	}
	var applied coordinator.Applied
	if code := r.ask("apply", `{"name":"crawl","min":1,"max":5,"template":{"allowFrom":["10.0.0.0/8"]}}`, &applied); code != "" || applied.Pool != "crawl" || applied.Seq != 1 {
		t.Fatalf("got %s, %+v", code, applied)
	}
	if rec, err := bus.Decode[bus.PoolRecord](applied.State); err != nil || !rec.Accepted {
		t.Errorf("got %+v, %v", rec, err)
	}
	var rec bus.PoolRecord
	if code := r.ask("scale", `{"pool":"crawl","size":3}`, &rec); code != "" || rec.Size != 3 {
		t.Errorf("got %s, %+v", code, rec)
	}
	if code := r.ask("scale", `{"pool":"crawl","size":6}`, &bad); code != "Invalid" || bad.Field != "size" {
		t.Errorf("beyond its bounds: got %s, %+v", code, bad)
	}
	first := r.record("crawl-1", phase(bus.PhaseRunning))
	r.record("crawl-3", phase(bus.PhaseRunning))
	if code := r.ask("delete", "crawl-1", &bad); code != "Invalid" || !strings.Contains(bad.Message, "pool crawl") {
		t.Errorf("a member was deleted: %s, %+v", code, bad)
	}
	if code := r.ask("rotate", `{"proxy":"crawl-1"}`, nil); code != "" {
		t.Errorf("got %s", code)
	}
	r.record("crawl-4", phase(bus.PhaseRunning))
	bustest.NoKey(t, r.js, bus.Names{}.Proxies(), first.Proxy)
	var pools coordinator.Listing
	if r.ask("pools", "", &pools); len(pools.Items) != 1 {
		t.Errorf("got %s", pools.Items)
	}
	if code := r.ask("delete", `{"pool":"crawl"}`, nil); code != "" {
		t.Errorf("got %s", code)
	}
	bustest.NoKey(t, r.js, bus.Names{}.Pools(), "crawl")
	bustest.Ended(t, r.js, bus.Names{}.Assignments(), bus.Names{}.AllAssign())
}

func TestHostsTakeOrders(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	r.host("kvm-1")
	r.host("kvm-2")
	r.ask("apply", string(intent("a")), nil)
	was := r.record("a", phase(bus.PhaseRunning))
	other := map[string]string{"kvm-1": "kvm-2", "kvm-2": "kvm-1"}[was.Host]
	if code := r.ask("drain", fmt.Sprintf(`{"host":%q}`, was.Host), nil); code != "" {
		t.Fatal(code)
	}
	r.record("a", func(rec bus.Record) error {
		if rec.Host != other || rec.Phase != bus.PhaseRunning {
			return fmt.Errorf("got %+v", rec)
		}
		return nil
	})
	bustest.Eventually(t, "the end of the drain", func() error {
		if code := r.ask("remove-host", fmt.Sprintf(`{"host":%q}`, was.Host), nil); code != "" {
			return fmt.Errorf("got %s", code)
		}
		return nil
	})
	bustest.NoKey(t, r.js, bus.Names{}.Hosts(), was.Host)
	var none struct{ Items []any }
	if code := r.ask("stranded", "", &none); code != "" || len(none.Items) != 0 {
		t.Errorf("got %s, %v", code, none.Items)
	}
}

func TestDescribeTellsEverythingButSecrets(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	r.host("kvm-1")
	r.ask("apply", `{"name":"a","spec":{"auth":{"username":"me","password":"hidden-1"},"cloudInit":"#cloud-config\n# hidden-2\n"}}`, nil)
	r.record("a", phase(bus.PhaseRunning))
	var text json.RawMessage
	var got coordinator.Described
	bustest.Eventually(t, "the events of a", func() error {
		r.ask("describe", "a", &text)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, e := range got.Events {
			reasons = append(reasons, e.Reason)
		}
		if want := []string{"Placed", "Running"}; !slices.Equal(reasons, want) {
			return fmt.Errorf("events %v, want %v", reasons, want)
		}
		return nil
	})
	if strings.Contains(string(text), "hidden") {
		t.Errorf("it has a secret: %s", text)
	}
	if got.Accepted == nil || got.Accepted.Spec.Auth.Username != "me" || got.Bound == nil || !strings.Contains(got.Accepted.Spec.CloudInit, "25 bytes") {
		t.Errorf("got %s", text)
	}
	if err := r.js.DeleteStream(bustest.Context(t), bus.Names{}.Events()); err != nil {
		t.Fatal(err)
	}
	var without coordinator.Described
	if code := r.ask("describe", "a", &without); code != "" || without.Accepted == nil || without.EventsError == "" {
		t.Errorf("without the stream of events: got %s, %+v", code, without)
	}
	for _, ask := range []string{`{"host":"kvm-1"}`, `{"proxy":"a"}`} {
		if code := r.ask("describe", ask, &text); code != "" || !strings.Contains(string(text), `"subjects"`) {
			t.Errorf("%s: got %s, %s", ask, code, text)
		}
	}
	if code := r.ask("describe", `{"proxy":"a","host":"kvm-1"}`, nil); code != "Invalid" {
		t.Errorf("both: got %s", code)
	}
}

// TestAWatchSaysThatItsLeaderWasReplaced has one leader that is told to stop, and one whose
// connection ends without a word.
func TestAWatchSaysThatItsLeaderWasReplaced(t *testing.T) {
	for name, end := range map[string]func(stop func(), nc *nats.Conn){
		"by itself":           func(stop func(), _ *nats.Conn) { stop() },
		"by the one after it": func(_ func(), nc *nats.Conn) { nc.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			first, nc, stop := r.connected("c1")
			r.leading(first)
			r.host("kvm-1")
			r.ask("apply", string(intent("a")), nil)
			second, _ := r.coordinator("c2")
			bustest.Eventually(t, "a standby, which hears watches", func() error {
				if role := second.Role(); role != coordinator.StandingBy {
					return errors.New(role.String())
				}
				return nil
			})
			sub, err := r.nc.SubscribeSync(r.nc.NewInbox())
			if err != nil {
				t.Fatal(err)
			}
			if err := r.nc.PublishRequest("fleet.api.watch", sub.Subject, []byte(`{"seconds":300}`)); err != nil {
				t.Fatal(err)
			}
			if msg, err := sub.NextMsg(bustest.Deadline); err != nil || len(msg.Data) == 0 {
				t.Fatalf("got %v, %v", msg, err)
			}
			end(stop, nc)
			for {
				msg, err := sub.NextMsg(bustest.Deadline)
				if err != nil {
					t.Fatal(err)
				}
				if len(msg.Data) > 0 {
					continue
				}
				if code := msg.Header.Get(micro.ErrorCodeHeader); code != "NotLeading" || !strings.Contains(msg.Header.Get(micro.ErrorHeader), "watch again") {
					t.Errorf("the last reply has the headers %v", msg.Header)
				}
				return
			}
		})
	}
}

func TestAWatchTellsWhatIsAndWhatChanges(t *testing.T) {
	r := newRig(t)
	r.coordinator("c1")
	r.host("kvm-1")
	r.ask("apply", string(intent("a")), nil)
	r.ask("apply", string(intent("other")), nil)
	r.record("a", phase(bus.PhaseRunning))
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.nc.PublishRequest("fleet.api.watch", inbox, []byte(`{"phase":"Running","seconds":5}`)); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	next := func(until func() bool) {
		t.Helper()
		for !until() {
			msg, err := sub.NextMsg(bustest.Deadline)
			if err != nil {
				t.Fatalf("%v, after %v", err, seen)
			}
			if len(msg.Data) == 0 {
				t.Fatalf("it ended after %v", seen)
			}
			var w coordinator.Watched
			if err := json.Unmarshal(msg.Data, &w); err != nil {
				t.Fatal(err)
			}
			seen[w.Proxy] = string(w.Record)
		}
	}
	next(func() bool { return seen["a"] != "" && seen["other"] != "" })
	r.ask("apply", string(intent("b")), nil)
	next(func() bool { return strings.Contains(seen["b"], `"Running"`) })
	r.ask("delete", "a", nil)
	next(func() bool { return seen["a"] == "null" })
	for {
		msg, err := sub.NextMsg(bustest.Deadline)
		if err != nil {
			t.Fatal(err)
		}
		if len(msg.Data) == 0 {
			if len(msg.Header) > 0 {
				t.Errorf("its time is over, and it ends with %v", msg.Header)
			}
			break
		}
	}
	if code := r.ask("watch", `{"seconds":601}`, nil); code != "Invalid" {
		t.Errorf("got %q", code)
	}
}
