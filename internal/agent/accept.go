package agent

import (
	"fmt"

	"proxyfleet/internal/bus"
)

// verdict is what becomes of a delivered assignment.
type verdict int

const (
	take   verdict = iota // record and carry out
	ignore                // already known, or older than what is known
	refuse                // not for this host: say so
)

// accept judges a delivered assignment by what the record has of its uid. The document
// with the higher sequence wins, unless its generation went back. A uid that is retired
// comes back only by a decision that is newer than its tombstone, and a tombstone of a
// retired uid is carried out again, for whoever sent it has not heard of the end.
func accept(a bus.Assignment, seq uint64, me who, held *entry, gone *retired) (verdict, string) {
	switch {
	case a.Installation != me.Installation:
		return refuse, fmt.Sprintf("proxy %s, uid %s: assigned by installation %s, this host works for %s", a.Proxy, a.UID, a.Installation, me.Installation)
	case a.HostID != me.HostID:
		return refuse, fmt.Sprintf("proxy %s, uid %s: assigned to host id %s, this is %s", a.Proxy, a.UID, a.HostID, me.HostID)
	case held != nil && (seq <= held.Seq || a.Generation < held.Assignment.Generation):
		return ignore, ""
	case held == nil && gone != nil && !a.Tombstone() && (seq <= gone.Seq || a.Generation < gone.Generation):
		return ignore, ""
	}
	return take, ""
}
