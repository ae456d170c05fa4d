package bus_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"proxyfleet/internal/bus"
)

func TestDigestIsOverSortedLinesOfWhatMatters(t *testing.T) {
	a := bus.State{UID: "a", Generation: 1, Phase: bus.PhaseRunning, Counter: 7}
	b := bus.State{UID: "b", Generation: 2, Phase: bus.PhaseFailed, Counter: 9}
	sum := sha256.Sum256([]byte("a 1 Running 7\nb 2 Failed 9\n"))
	want := hex.EncodeToString(sum[:])
	states := []bus.State{b, a}
	if got := bus.Digest(states); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if states[0].UID != "b" {
		t.Error("the caller's states were sorted")
	}
	for what, change := range map[string]func(*bus.State){
		"uid":        func(s *bus.State) { s.UID = "c" },
		"generation": func(s *bus.State) { s.Generation++ },
		"phase":      func(s *bus.State) { s.Phase = bus.PhaseGone },
		"counter":    func(s *bus.State) { s.Counter++ },
	} {
		other := a
		change(&other)
		if bus.Digest([]bus.State{other, b}) == want {
			t.Errorf("another %s has the same digest", what)
		}
	}
	same := a
	same.Step = "only for people"
	if bus.Digest([]bus.State{same, b}) != want {
		t.Error("the step changes the digest")
	}
}

func TestULIDsAreLowerCaseAndOrderedByTime(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := bus.NewULID()
		if !bus.ValidULID(id) || seen[id] || len(id) != 26 {
			t.Fatalf("bad ULID %q", id)
		}
		seen[id] = true
	}
	for _, bad := range []string{"", "01K7Z3V5W8Q2M4N6P8R0S2T4V6", "01k7z3v5w8q2m4n6p8r0s2t4v", "81k7z3v5w8q2m4n6p8r0s2t4v6", "01k7z3v5w8q2m4n6p8r0s2t4vu", "01k7z3v5w8q2m4n6p8r0s2t4v6x"} {
		if bus.ValidULID(bad) {
			t.Errorf("%q is taken for a ULID", bad)
		}
	}
}
