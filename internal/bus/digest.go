package bus

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Digest is what a beat says of all states of its host, and what a coordinator computes
// over those it has: the SHA-256, in lower-case hex, over one line "uid generation phase
// counter" for each state, sorted by uid. The order of states does not matter; they are
// left as they are. Two that differ mean that a state or an assignment was missed.
func Digest(states []State) string {
	sorted := slices.SortedFunc(slices.Values(states), func(a, b State) int { return cmp.Compare(a.UID, b.UID) })
	h := sha256.New()
	for _, s := range sorted {
		fmt.Fprintf(h, "%s %d %s %d\n", s.UID, s.Generation, s.Phase, s.Counter)
	}
	return hex.EncodeToString(h.Sum(nil))
}
