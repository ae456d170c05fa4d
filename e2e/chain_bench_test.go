package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The raw chain is what the fleet is measured against: the same three stored hops with
// nothing in between, each relay a process of its own with one pull consumer.
//
//	publish chain.a.<n> → relay → publish chain.b.<n> → relay → publish chain.c.<n>

// chainPayload is about as large as an assignment.
var chainPayload = []byte(`{"pad":"` + strings.Repeat("x", 580) + `"}`)

// relayMain is what the test binary does when PROXYFLEET_RELAY says "from:to": it moves
// messages until it is interrupted.
func relayMain(hop string) error {
	from, to, _ := strings.Cut(hop, ":")
	nc, err := nats.Connect(os.Getenv("PROXYFLEET_RELAY_URL"))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cons, err := js.Consumer(ctx, strings.ToUpper("chain_"+from), "relay")
	if err != nil {
		return err
	}
	cc, err := cons.Consume(func(m jetstream.Msg) {
		id := m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:]
		if _, err := js.PublishAsync("chain."+to+"."+id, m.Data()); err != nil {
			fmt.Fprintln(os.Stderr, "relay:", err)
		}
		_ = m.Ack()
	})
	if err != nil {
		return err
	}
	defer cc.Stop()
	<-ctx.Done()
	return nil
}

// newChain makes the streams of the chain, starts its relays, and returns a probe.
func newChain(b *testing.B, url string) probe {
	nc, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	for _, s := range []string{"a", "b", "c"} {
		name := strings.ToUpper("chain_" + s)
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{"chain." + s + ".>"}, MaxMsgsPerSubject: 1}); err != nil {
			b.Fatal(err)
		}
		if s != "c" {
			if _, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: "relay", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, hop := range []string{"a:b", "b:c"} {
		start(b, []string{"PROXYFLEET_RELAY=" + hop, "PROXYFLEET_RELAY_URL=" + url}, os.Args[0])
	}
	seen := make(chan arrival, 1<<14)
	cons, err := js.OrderedConsumer(ctx, "CHAIN_C", jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	if err != nil {
		b.Fatal(err)
	}
	cc, err := cons.Consume(func(m jetstream.Msg) {
		seen <- arrival{m.Subject()[len("chain.c."):], time.Now()}
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(cc.Stop)
	return probe{
		send: func(id string) error {
			_, err := js.PublishAsync("chain.a."+id, chainPayload)
			return err
		},
		seen: seen,
	}
}
