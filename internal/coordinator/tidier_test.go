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
	"proxyfleet/internal/coordinator/core"
)

// removals are ledger entries with their sequences.
func removals(seqs ...uint64) []core.Command {
	var out []core.Command
	for _, s := range seqs {
		out = append(out, core.ForgetLedger{Entry: bus.Msg{Seq: s}})
	}
	return out
}

func TestWhatAKilledServerMayHaveForgottenIsRemovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []uint64
		fails := 1
		tidy := newTidier(nil, slog.New(slog.DiscardHandler))
		tidy.remove = func(_ context.Context, c core.Command) error {
			if fails--; fails == 0 {
				return errors.New("not now")
			}
			seen = append(seen, c.(core.ForgetLedger).Entry.Seq)
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- tidy.run(ctx) }()
		expect := func(want ...uint64) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if !slices.Equal(seen, want) {
				t.Errorf("removed %v, want %v", seen, want)
			}
			seen = nil
		}
		tidy.add(removals(1, 2)...)
		expect(1, 2) // in order, in spite of the failure
		time.Sleep(forgetful)
		tidy.add(removals(3)...)
		expect(3)
		tidy.again()
		expect(3) // the others are on disk by now
		tidy.again()
		expect(3)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestATidierEndsTheTermWhenItsLeadIsLost(t *testing.T) {
	tidy := newTidier(nil, slog.New(slog.DiscardHandler))
	tidy.remove = func(context.Context, core.Command) error { return bus.ErrFenced }
	tidy.add(removals(1)...)
	if err := tidy.run(t.Context()); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
}
