package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// simAgent is an agent.yaml of a host whose backend costs nothing.
const simAgent = "backend: {type: sim}\nprobe: {disabled: true}\nlog: {level: warn}\n"

// BenchmarkIntentToRunning measures from publishing an intent to the state Running having
// been stored and delivered, through a coordinator and an agent, next to the raw chain of
// stored messages on the same server. Each way is measured idle, one after another, and
// with 200 intents per second.
func BenchmarkIntentToRunning(b *testing.B) {
	for _, sync := range []string{"", "always"} {
		name := map[string]string{"": "sync=default", "always": "sync=always"}[sync]
		b.Run(name, func(b *testing.B) {
			f := newFleet(b, sync)
			ways := []struct {
				name string
				probe
			}{{"raw", newChain(b, f.url)}, {"fleet", newFleetProbe(b, f)}}
			for _, way := range ways {
				way.warmUp(b)
			}
			for _, load := range []struct {
				name     string
				interval time.Duration
			}{{"idle", 0}, {"200ps", 5 * time.Millisecond}} {
				for _, way := range ways {
					b.Run("load="+load.name+"/way="+way.name, func(b *testing.B) { way.measure(b, load.name, load.interval) })
				}
			}
		})
	}
}

// newFleetProbe starts an agent and measures from intents to states.
func newFleetProbe(b *testing.B, f *fleet) probe {
	f.startAgent("sim-1", simAgent)
	f.awaitOffer(b, "sim-1")
	cons, err := f.js.OrderedConsumer(b.Context(), f.names.States(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		b.Fatal(err)
	}
	seen := make(chan arrival, 1<<14)
	cc, err := cons.Consume(func(m jetstream.Msg) {
		at := time.Now()
		var s bus.State
		if json.Unmarshal(m.Data(), &s) == nil && s.Phase == bus.PhaseRunning {
			seen <- arrival{s.Proxy, at}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(cc.Stop)
	pad := strings.Repeat("x", 400)
	return probe{
		send: func(id string) error {
			doc := fmt.Sprintf(`{"name":%q,"spec":{"auth":{"username":"u","password":"p"},"cloudInit":"# %s"}}`, id, pad)
			_, err := f.js.PublishAsync(f.names.IntentProxy(id), []byte(doc))
			return err
		},
		seen: seen,
	}
}
