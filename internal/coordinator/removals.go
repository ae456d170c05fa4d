package coordinator

import (
	"maps"
	"slices"
	"time"

	"proxyfleet/internal/bus"
)

// removals are the subjects of the assignments that were ended lately. A server that is
// killed may bring back what was on them (see [bus.Removal]), so they are ended once more
// after each reconnect. Used by the decider alone.
type removals map[string]time.Time

// forgetful is how long after a removal a killed server may still bring something back: it
// notes every two minutes what it holds, and the removal itself goes after one.
const forgetful = 10 * time.Minute

// note takes writes that were stored: something new on a subject is no removal any more.
func (r removals) note(stored []bus.Write, now time.Time) {
	for _, w := range stored {
		if len(w.Data) == 0 {
			r[w.Subject] = now
		} else {
			delete(r, w.Subject)
		}
	}
}

// again are the removals to be repeated; older ones are forgotten.
func (r removals) again(now time.Time) []bus.Write {
	maps.DeleteFunc(r, func(_ string, at time.Time) bool { return now.Sub(at) > forgetful })
	var writes []bus.Write
	for _, subject := range slices.Sorted(maps.Keys(r)) {
		writes = append(writes, bus.Removal(subject))
	}
	return writes
}
