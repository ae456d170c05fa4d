package coordinator

import (
	"testing"
	"testing/synctest"
	"time"
)

// Whatever a key goes through within the time that a change waits is one write.
func TestAKeyThatChangesAgainWithinAMomentIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{keys: map[string][]byte{}, dirty: map[string]bool{}}
		if !b.due().IsZero() {
			t.Error("nothing has changed, and something is due")
		}
		b.set("a", []byte("Pending"))
		time.Sleep(settle - 1)
		b.set("a", []byte("Running"))
		if got := b.take(time.Now()); len(got) > 0 {
			t.Errorf("written too early: %v", got)
		}
		time.Sleep(time.Nanosecond) // the second change does not put the first one off
		got := b.take(time.Now())
		if len(got) != 1 || string(got[0].Value) != "Running" {
			t.Errorf("got %v, want the newest value once", got)
		}
		if !b.due().IsZero() {
			t.Error("everything was taken, and something is due")
		}
	})
}

func TestABucketWithAPauseIsWrittenAtOnceAndThenLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{pause: time.Second, keys: map[string][]byte{}, dirty: map[string]bool{}}
		b.set("h", []byte("1"))
		time.Sleep(settle)
		if got := b.take(time.Now()); len(got) != 1 {
			t.Errorf("the first change: got %v", got)
		}
		b.set("h", []byte("2"))
		if got, want := time.Until(b.due()), time.Second; got != want {
			t.Errorf("the next write is due in %v, want %v", got, want)
		}
		time.Sleep(time.Second)
		if got := b.take(time.Now()); len(got) != 1 || string(got[0].Value) != "2" {
			t.Errorf("the second change: got %v", got)
		}
	})
}
