package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

// arrival says when the end of a path was reached for an id.
type arrival struct {
	id string
	at time.Time
}

// probe is a path that is measured: send starts it for a new id, seen tells its end.
type probe struct {
	send func(id string) error
	seen <-chan arrival
}

// warmUp waits until the path answers at all, and until it is warm.
func (p probe) warmUp(b *testing.B) {
	b.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for n, got := 0, 0; got < 200; n++ {
		if time.Now().After(deadline) {
			b.Fatalf("the path answered %d of %d while warming up", got, n)
		}
		if err := p.send(fmt.Sprintf("warm-%d-%d", os.Getpid(), n)); err != nil {
			b.Fatal(err)
		}
		select {
		case <-p.seen:
			got++
		case <-time.After(500 * time.Millisecond):
		}
	}
	for {
		select {
		case <-p.seen:
		case <-time.After(300 * time.Millisecond):
			return
		}
	}
}

// measure sends b.N ids, one every interval, or each after the one before has arrived
// when interval is 0, and reports the quantiles of the time from send to arrival.
func (p probe) measure(b *testing.B, name string, interval time.Duration) {
	b.Helper()
	sent := make(map[string]time.Time, b.N)
	took := make([]time.Duration, 0, b.N)
	collect := func(a arrival) {
		if at, ok := sent[a.id]; ok {
			took = append(took, a.at.Sub(at))
			delete(sent, a.id)
		}
	}
	next := time.Now()
	run := next.UnixNano() // a name that was used before would have nothing to do
	for n := range b.N {
		id := fmt.Sprintf("%s-%x-%d", name, run, n)
		sent[id] = time.Now()
		if err := p.send(id); err != nil {
			b.Fatal(err)
		}
		for next = next.Add(interval); interval > 0 && time.Now().Before(next); {
			select {
			case a := <-p.seen:
				collect(a)
			case <-time.After(time.Until(next)):
			}
		}
		for interval == 0 && len(sent) > 0 {
			select {
			case a := <-p.seen:
				collect(a)
			case <-time.After(10 * time.Second):
				b.Fatalf("%s did not arrive within 10 s", id)
			}
		}
	}
	for len(sent) > 0 {
		select {
		case a := <-p.seen:
			collect(a)
		case <-time.After(10 * time.Second):
			b.Fatalf("%d of %d did not arrive within 10 s", len(sent), b.N)
		}
	}
	slices.Sort(took)
	b.ReportMetric(0, "ns/op") // the quantiles say more
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
