package backends

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
)

// receive takes what is ready now.
func receive(events <-chan Event) (out []Event) {
	for {
		synctest.Wait()
		select {
		case e, ok := <-events:
			if !ok {
				return out
			}
			out = append(out, e)
		default:
			return out
		}
	}
}

func TestAWatcherBeginsWithListAgainAndGetsWhatFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Feed
		f.Send(Event{UID: "before"})
		ctx, cancel := context.WithCancel(t.Context())
		a, b := f.Watch(ctx), f.Watch(ctx)
		for _, events := range []<-chan Event{a, b} {
			if got := receive(events); len(got) != 1 || got[0].UID != "" {
				t.Errorf("first: got %v, want one event without a uid", got)
			}
		}
		f.Send(Event{UID: "x", Reason: "Stopped"})
		for _, events := range []<-chan Event{a, b} {
			if got := receive(events); len(got) != 1 || got[0] != (Event{"x", "Stopped"}) {
				t.Errorf("then: got %v, want the event", got)
			}
		}
		cancel()
		synctest.Wait()
		if _, open := <-a; open {
			t.Error("the channel is open after the context ended")
		}
		if f.Send(Event{UID: "x"}); len(f.watchers) != 0 {
			t.Errorf("%d watchers are still known", len(f.watchers))
		}
	})
}

func TestASlowWatcherGetsTheNewestOfEachUIDOrListAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Feed
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		events := f.Watch(ctx)
		synctest.Wait() // the first event waits to be taken
		for i := range 100 {
			f.Send(Event{UID: "x", Reason: fmt.Sprint(i)})
		}
		if got := receive(events); len(got) != 2 || got[1] != (Event{"x", "99"}) {
			t.Errorf("got %v, want the first and the newest", got)
		}
		f.Send(Event{UID: "busy"})
		synctest.Wait()
		for i := range maxQueued + 1 {
			f.Send(Event{UID: fmt.Sprint(i)})
		}
		got := receive(events)
		if len(got) != 2 || got[1].UID != "" {
			t.Errorf("after too many: got %d events ending in %v, want one that says list again", len(got), got[len(got)-1])
		}
	})
}
