package bus_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// speaker is a link whose host id is compared with what the consumer says, as agents do.
func speaker(t *testing.T, s *bustest.Server, id string, looked chan<- bus.Admission) *bus.HostLink {
	l := s.Host("h1")
	l.OnAdmission(func(_ bus.Installation, as bus.Admission) error {
		if looked != nil {
			select {
			case looked <- as:
			default:
			}
		}
		if why := as.Refuses(id); why != "" && as.Asked != id {
			return fmt.Errorf("%w: %s", bus.ErrRefused, why)
		} else if why != "" {
			return fmt.Errorf("asked: %s", why)
		}
		return nil
	})
	pull(t, l)
	return l
}

func says(t *testing.T, f *bus.Fleet, l *bus.HostLink, counter uint64) (stored bool) {
	t.Helper()
	l.PutHost(bus.Host{Type: bus.TypeHost, Counter: counter})
	ctx, cancel := context.WithTimeout(bustest.Context(t), 500*time.Millisecond)
	defer cancel()
	return l.Flush(ctx) == nil
}

func TestARefusedHostSaysNothingWhereTheHostOfItsNameDoes(t *testing.T) {
	s, f := bustest.Fleet(t)
	ctx := bustest.Context(t)
	seen := bustest.Follow(t, f, f.Names().States(), "").CaughtUp()
	first := speaker(t, s, "first", nil)
	first.PutHost(bus.Host{Type: bus.TypeHost, Counter: 1}) // there is no consumer: this is how one is asked for
	seen.Newest(f.Names().StateHost("h1"), hostCounter(1))
	mine := bus.Admission{HostID: "first", Word: "it is the first one's"}
	if err := f.AdmitHost(ctx, "h1", mine); err != nil {
		t.Fatal(err)
	}
	second := speaker(t, s, "second", nil)
	if says(t, f, second, 100) {
		t.Fatal("a host that is refused overwrote the document of the one that is admitted")
	}
	s.Restart() // what it wanted to say is not sent by the way, either
	if says(t, f, second, 101) {
		t.Fatal("a host that is refused speaks after a reconnect")
	}
	bustest.Eventually(t, "the admitted one speaks", func() error {
		if !says(t, f, first, 2) {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	seen.Newest(f.Names().StateHost("h1"), hostCounter(2))

	// Asked by the leader, and later admitted, it says the newest of what was held.
	mine.Asked, mine.Ask = "second", "1"
	if err := f.AdmitHost(ctx, "h1", mine); err != nil {
		t.Fatal(err)
	}
	seen.Newest(f.Names().StateHost("h1"), hostCounter(101))
}

func hostCounter(want uint64) func(bus.Msg) error {
	return func(m bus.Msg) error {
		h, err := bus.Decode[bus.Host](m.Data)
		if err == nil && h.Counter != want {
			err = fmt.Errorf("counter %d, want %d", h.Counter, want)
		}
		return err
	}
}

func TestAHostThatPullsLooksAgainAtWhatItsConsumerSays(t *testing.T) {
	s, f := bustest.Fleet(t)
	as := bus.Admission{HostID: "first", Word: "it is the first one's"}
	if err := f.AdmitHost(bustest.Context(t), "h1", as); err != nil {
		t.Fatal(err)
	}
	looked := make(chan bus.Admission, 1)
	l := speaker(t, s, "first", looked)
	<-looked
	as.Asked, as.Ask = "first", "2"
	if err := f.AdmitHost(bustest.Context(t), "h1", as); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-looked:
		if got != as {
			t.Errorf("got %+v, want %+v", got, as)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not look again")
	}
	// Another one is admitted while it is connected: it says nothing any more.
	as = bus.Admission{HostID: "second", Word: "it is the second one's"}
	if err := f.AdmitHost(bustest.Context(t), "h1", as); err != nil {
		t.Fatal(err)
	}
	for <-looked != as {
	}
	if says(t, f, l, 9) {
		t.Error("it speaks for the host of the name, which it is not any more")
	}
}
