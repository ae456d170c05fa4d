package agent

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestAHostIsCountedAgainSoonAfterOthersChangedItAndNotInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		again := make(chan struct{}, 1)
		began := time.Now()
		var at []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			repeat(ctx, func() time.Duration { return time.Minute }, again, func() { at = append(at, time.Since(began)) })
		}()
		time.Sleep(10 * time.Second)
		ask(again)
		for range 100 { // a storm of 2 s
			time.Sleep(20 * time.Millisecond)
			ask(again)
		}
		time.Sleep(70 * time.Second)
		cancel()
		<-done
		if want := []time.Duration{0, 10 * time.Second, 15 * time.Second, 75 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("counted at %v, want %v", at, want)
		}
	})
}
