package core

import "proxyfleet/internal/bus"

// Command is something to be done: one of the types below.
type Command interface{ command() }

// Commit is one decision: the ledger entry first, then the assignments and tombstones that
// follow from it. Where storing stops after the first few, a takeover writes the rest.
type Commit struct {
	Writes []bus.Write
	Trace  string // traceparent of the intent that caused it, or empty
}

// Retire ends a tombstone and the state of its uid, unless there is something newer;
// 0: there is none.
type Retire struct {
	Assign, State bus.Msg // subject and sequence only
}

// ForgetLedger ends what is stored of a ledger entry.
type ForgetLedger struct{ Entry bus.Msg }

// Bucket is one of the inventory's.
type Bucket int

// The buckets of the inventory.
const (
	Proxies Bucket = iota
	Hosts
	Endpoints
	Pools
	Buckets // how many there are
)

// String names the bucket without its root.
func (b Bucket) String() string { return [...]string{"proxies", "hosts", "endpoints", "pools"}[b] }

// Put sets a key of the inventory; Delete removes it. They are derived from what was
// committed before them.
type Put struct {
	Bucket Bucket
	Key    string
	Value  []byte
}

// Delete removes a key of the inventory.
type Delete struct {
	Bucket Bucket
	Key    string
}

// AdmitHost makes the consumer of a host, or brings it up to date: it says which host id
// may use it, so that another agent of the name leaves it alone.
type AdmitHost struct {
	Host string
	As   bus.Admission
}

// DismissHost removes the consumer of a host that was removed.
type DismissHost struct{ Host string }

// UnpinHost lets a new session of a host pull at once.
type UnpinHost struct{ Host string }

// ResyncHost delivers all of a host's assignments again.
type ResyncHost struct {
	Host string
	As   bus.Admission // should its consumer be missing
}

// AskPulls asks whether somebody waits for a host's assignments; [Pulls] answers.
type AskPulls struct{ Host string }

// Say publishes an event for people, once for an id.
type Say struct {
	Subject string
	ID      string
	Doc     bus.Event
}

// Alarm is for the people who run the coordinator: something that does not mend itself.
type Alarm struct{ Reason, Message string }

func (Commit) command()       {}
func (Retire) command()       {}
func (ForgetLedger) command() {}
func (Put) command()          {}
func (Delete) command()       {}
func (AdmitHost) command()    {}
func (DismissHost) command()  {}
func (UnpinHost) command()    {}
func (ResyncHost) command()   {}
func (AskPulls) command()     {}
func (Say) command()          {}
func (Alarm) command()        {}
