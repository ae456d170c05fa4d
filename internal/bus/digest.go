package bus

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Digest is the digest of a beat over the newest states of a host: SHA-256, in hex, over
// one line "<uid> <generation> <phase> <counter>\n" for each, sorted by uid. States that say
// Gone are left out, for either side may have forgotten them already. Host and coordinator
// compute it alike; while they differ a state is on its way, or was lost.
func Digest(states []State) string {
	sorted := slices.DeleteFunc(slices.Clone(states), func(s State) bool { return s.Phase == PhaseGone })
	slices.SortFunc(sorted, func(a, b State) int { return cmp.Compare(a.UID, b.UID) })
	h := sha256.New()
	for _, s := range sorted {
		_, _ = fmt.Fprintf(h, "%s %d %s %d\n", s.UID, s.Generation, s.Phase, s.Counter)
	}
	return hex.EncodeToString(h.Sum(nil))
}
