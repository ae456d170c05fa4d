package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// flood is how many intents BenchmarkFlood publishes at once.
const flood = 10_000

// BenchmarkFlood publishes 10,000 intents at once, for one host whose backend costs nothing,
// and ends when the inventory shows all of them Running. It reports the seconds that took,
// after how long the server had stored the intents themselves, and the processor time for
// each proxy: that of coordinator and agent, and the server's.
func BenchmarkFlood(b *testing.B) {
	for _, sync := range []string{"", "always"} {
		name := map[string]string{"": "sync=default", "always": "sync=always"}[sync]
		b.Run(name, func(b *testing.B) {
			var took, stored, ours, servers time.Duration
			for range b.N {
				f := newFleet(b, sync)
				agent := f.startAgent("sim-1", simAgent)
				f.awaitOffer(b, "sim-1")
				before, serverBefore := f.coordinator.cpu()+agent.cpu(), f.server.cpu()
				shown, acked := f.flood(b)
				took, stored = took+shown, stored+acked
				ours += f.coordinator.cpu() + agent.cpu() - before
				servers += f.server.cpu() - serverBefore
				agent.kill()
				f.coordinator.kill()
				f.server.kill()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(took.Seconds()/float64(b.N), "s")
			b.ReportMetric(stored.Seconds()/float64(b.N), "stored-s")
			b.ReportMetric(ms(ours)/float64(b.N*flood), "cpu-ms/proxy")
			b.ReportMetric(ms(servers)/float64(b.N*flood), "server-cpu-ms/proxy")
		})
	}
}

// flood publishes the intents and returns after how long all were shown Running, and after how
// long the server had stored the last intent, before which none of the rest can be complete.
func (f *fleet) flood(b *testing.B) (shown, stored time.Duration) {
	kv, err := f.js.KeyValue(b.Context(), f.names.Proxies())
	if err != nil {
		b.Fatal(err)
	}
	w, err := kv.WatchAll(b.Context(), jetstream.UpdatesOnly())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Stop() }()
	docs := make([][]byte, flood)
	for i := range docs {
		docs[i] = fmt.Appendf(nil, `{"name":"p-%d","spec":{"auth":{"username":"u","password":"p"}}}`, i)
	}
	began := time.Now()
	acked := make(chan time.Duration, 1)
	go func() {
		for i, doc := range docs {
			if _, err := f.js.PublishAsync(f.names.IntentProxy(fmt.Sprintf("p-%d", i)), doc, jetstream.WithStallWait(30*time.Second)); err != nil {
				b.Error(err)
				break
			}
		}
		<-f.js.PublishAsyncComplete()
		acked <- time.Since(began)
	}()
	running := map[string]bool{}
	for deadline := time.After(2 * time.Minute); len(running) < flood; {
		select {
		case e := <-w.Updates():
			var r bus.Record
			if e != nil && json.Unmarshal(e.Value(), &r) == nil && r.Phase == bus.PhaseRunning {
				running[r.Proxy] = true
			}
		case <-deadline:
			b.Fatalf("%d of %d are Running", len(running), flood)
		}
	}
	return time.Since(began), <-acked
}

// awaitOffer waits until a host is there and has room.
func (f *fleet) awaitOffer(t testing.TB, host string) {
	t.Helper()
	eventually(t, 20*time.Second, func() error {
		var h bus.HostRecord
		if ok, err := f.get(f.names.Hosts(), host, &h); err != nil || !ok || h.Offer.Capacity.Slots == 0 {
			return fmt.Errorf("host %s offers nothing yet: %+v, %v", host, h, err)
		}
		return nil
	})
}

// cpu is the processor time that the process has used.
func (p *proc) cpu() time.Duration {
	p.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the name before it may have spaces
	var user, system int64
	for i, field := range strings.Fields(rest) {
		switch i {
		case 11: // utime, in ticks of 10 ms (proc(5), sysconf(_SC_CLK_TCK) on Linux)
			_, err = fmt.Sscan(field, &user)
		case 12:
			_, err = fmt.Sscan(field, &system)
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}
