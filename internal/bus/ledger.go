package bus

import "time"

// Ledger is the leader's own record of what it decided for one name. It is what makes a
// takeover possible, and what remembers the accepted intent when a bad one overwrites it.
type Ledger struct {
	Type       string    `json:"type"`
	Kind       string    `json:"kind"` // "proxy", "pool", "host" or "fleet"
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

	// Of a pool's member: its pool, and what people asked for it.
	Pool   string `json:"pool,omitempty"`
	Pinned bool   `json:"pinned,omitempty"` // no rotation replaces it
	Rotate bool   `json:"rotate,omitempty"` // it is to be replaced

	// Of a host: what people asked for it, and since when its proxies are placed elsewhere
	// because it is silent (zero: they are not).
	Orders *HostOrders `json:"orders,omitempty"`
	Lost   time.Time   `json:"lost,omitzero"`

	// Of the fleet (kind and name "fleet"): why nothing is deleted or moved, the last recovery
	// with the incarnations whose hosts it takes along (see [Admission]), and those that hosts
	// were heard of since.
	Frozen   string   `json:"frozen,omitempty"`
	Recovery string   `json:"recovery,omitempty"`
	Recovers []string `json:"recovers,omitempty"`
	Heard    []string `json:"heard,omitempty"`
}

// FrozenWord begins every reason in [Ledger.Frozen].
const FrozenWord = "deletions and moves are frozen: "

// HostOrders are what people asked for one host. Nothing of it ends by itself but a
// maintenance window.
type HostOrders struct {
	Cordon      *Order  `json:"cordon,omitempty"`      // nothing new there
	Drain       *Order  `json:"drain,omitempty"`       // and what is there is placed elsewhere
	Maintenance *Window `json:"maintenance,omitempty"` // cordoned for a time, in which silence is no loss
	Removed     *Order  `json:"removed,omitempty"`     // it is no host of the fleet any more
	// Abandoned are things of the host that a person gave up: they are not listed as
	// stranded any more.
	Abandoned []Unclaimed `json:"abandoned,omitempty"`
}

// Order is one thing that a person asked for.
type Order struct {
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"`
}

// Window is a time in which a host is being worked on.
type Window struct {
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
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
	// Stranded: its host was removed before it said that nothing is left.
	Stranded bool `json:"stranded,omitempty"`
	// Abandoned: a person waits for its end no longer. Its tombstone stays.
	Abandoned bool `json:"abandoned,omitempty"`
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
