package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"proxyfleet/internal/bus"
)

func TestStatesAreRemovedInOrderInSpiteOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var removed []uint64
		calls := 0
		tidy := newTidier(nil, slog.New(slog.DiscardHandler))
		tidy.remove = func(_ context.Context, m bus.Msg) error {
			if calls++; calls < 3 {
				return errors.New("not now")
			}
			removed = append(removed, m.Seq)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tidy.run(ctx) }()
		tidy.add(bus.Msg{Seq: 1}, bus.Msg{Seq: 2})
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []uint64{1, 2}; !slices.Equal(removed, want) {
			t.Errorf("removed %v, want %v", removed, want)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestATidierEndsTheTermWhenItsLeadIsLost(t *testing.T) {
	tidy := newTidier(nil, slog.New(slog.DiscardHandler))
	tidy.remove = func(context.Context, bus.Msg) error { return bus.ErrFenced }
	tidy.add(bus.Msg{Seq: 1})
	if err := tidy.run(t.Context()); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
}

func TestLateRemovalsAreRepeatedUnlessSomethingNewWasWritten(t *testing.T) {
	r, start := removals{}, time.Unix(0, 0)
	r.note([]bus.Write{bus.Removal("old"), bus.Removal("a"), bus.Removal("b")}, start)
	r.note([]bus.Write{bus.Removal("a"), bus.Removal("b"), bus.Removal("c")}, start.Add(time.Minute))
	r.note([]bus.Write{{Subject: "b", Data: []byte("buried again")}}, start.Add(2*time.Minute))
	var subjects []string
	for _, w := range r.again(start.Add(forgetful + time.Second)) {
		subjects = append(subjects, w.Subject)
	}
	if want := []string{"a", "c"}; !slices.Equal(subjects, want) {
		t.Errorf("repeated %v, want %v", subjects, want)
	}
}
