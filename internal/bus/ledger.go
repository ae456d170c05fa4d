package bus

import "time"

// Ledger is the leader's own record of what it decided for one name. It is what makes a
// takeover possible, and what remembers the accepted intent when a bad one overwrites it.
type Ledger struct {
	Type       string    `json:"type"`
	Kind       string    `json:"kind"` // "proxy", "pool" or "host"
	Name       string    `json:"name"`
	IntentSeq  uint64    `json:"intentSeq,omitempty"` // of the accepted document
	Accepted   *Intent   `json:"accepted,omitempty"`
	Generation uint64    `json:"generation,omitempty"`
	UID        string    `json:"uid,omitempty"`
	Host       string    `json:"host,omitempty"`
	HostID     string    `json:"hostId,omitempty"`
	Bound      *Spec     `json:"bound,omitempty"` // the spec as assigned, the host's defaults filled in
	Shape      *Capacity `json:"shape,omitempty"` // what the binding takes of its host
	Retired    []Retired `json:"retired,omitempty"`
	// Applied is the intent sequence that the binding satisfies. It is lower than IntentSeq
	// while an accepted change waits for a host.
	Applied   uint64   `json:"applied,omitempty"`
	Desired   Desired  `json:"desired,omitempty"`   // of the binding, as assigned
	Defaulted []string `json:"defaulted,omitempty"` // fields of Bound that the host's defaults filled in
	// Refused are hosts that cannot run the accepted intent, until it or their offer changes.
	Refused   []Refused `json:"refused,omitempty"`
	Conflicts int       `json:"conflicts,omitempty"` // bindings in a row that met someone else's thing
}

// Retired is a uid that must not exist any more; kept for 90 days after it is gone.
type Retired struct {
	UID        string    `json:"uid"`
	Host       string    `json:"host"`
	HostID     string    `json:"hostId,omitempty"`
	Since      time.Time `json:"since"`
	Generation uint64    `json:"generation,omitempty"` // that its tombstone carries
	Gone       bool      `json:"gone,omitempty"`       // the host said that nothing is left
	Shape      *Capacity `json:"shape,omitempty"`      // what it takes of its host until it is gone
}

// Fence is the document under [Names.Fence] and each bucket's [FenceKey].
type Fence struct {
	Type        string `json:"type"`
	Term        uint64 `json:"term"`
	Incarnation string `json:"incarnation"`
	Holder      string `json:"holder"`
	Nonce       string `json:"nonce"` // tells whether a write with a lost answer was stored
}

// LeaseDoc tells who leads; it expires by itself.
type LeaseDoc struct {
	Type   string `json:"type"`
	Holder string `json:"holder"` // empty: released
	Nonce  string `json:"nonce"`  // of the process: tells its writes from those of one before it
}
