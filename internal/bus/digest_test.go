package bus

import "testing"

func TestDigest(t *testing.T) {
	a := State{UID: "a", Generation: 1, Phase: PhaseRunning, Counter: 7}
	b := State{UID: "b", Generation: 2, Phase: PhaseStopped, Counter: 9}
	base := Digest([]State{a, b})
	if got := Digest([]State{b, a}); got != base {
		t.Error("depends on the order of the states")
	}
	if got := Digest([]State{a, b, {UID: "c", Phase: PhaseGone}}); got != base {
		t.Error("depends on a state that is gone")
	}
	for name, other := range map[string]State{
		"uid":        {UID: "x", Generation: 1, Phase: PhaseRunning, Counter: 7},
		"generation": {UID: "a", Generation: 2, Phase: PhaseRunning, Counter: 7},
		"phase":      {UID: "a", Generation: 1, Phase: PhaseDegraded, Counter: 7},
		"counter":    {UID: "a", Generation: 1, Phase: PhaseRunning, Counter: 8},
	} {
		if Digest([]State{other, b}) == base {
			t.Errorf("does not cover the %s", name)
		}
	}
}
