package images

import (
	"fmt"
	"testing"
	"time"
)

func TestPruningTakesTheLongestUnaskedAndKeepsWhatIsUsedOrFresh(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	base := func(digest string, hours int) Stored {
		return Stored{Base: Base{Digest: digest}, Bytes: 10, Asked: now.Add(-time.Duration(hours) * time.Hour)}
	}
	bases := []Stored{base("oldest", 9), base("used", 8), base("old", 7), base("fresh", 0)}
	for limit, want := range map[int64]string{
		100: "[]",
		40:  "[]",
		39:  "[oldest]",
		30:  "[oldest]",
		29:  "[oldest old]",
		0:   "[oldest old]",
	} {
		var got []string
		for _, b := range Excess(bases, limit, map[string]bool{"used": true}, now) {
			got = append(got, b.Digest)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("to %d bytes: remove %v, want %s", limit, got, want)
		}
	}
}
