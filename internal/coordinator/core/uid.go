package core

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// uidSource makes the uids of one step out of its seed.
type uidSource struct {
	seed [16]byte
	n    uint64
}

// next returns a new uid: a lower-case ULID of now.
func (s *uidSource) next(now time.Time) string {
	s.n++
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(s.seed[:], s.n))
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(now)) // fails in the year 10889 only
	_ = id.SetEntropy(sum[:10])         // fails on another length only
	return strings.ToLower(id.String())
}

// sorted returns the values of m in the order of their keys: maps have none, and equal
// inputs must have equal outputs.
func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}
