package bus

import "time"

// PoolIntent is what a person publishes for a pool: some proxies of one template. Always
// the whole document. The members are named <pool>-<n>, with numbers that are never used
// again; they have no intents of their own.
type PoolIntent struct {
	Type    string  `json:"type,omitempty"`
	Name    string  `json:"name" jsonschema:"pattern=^[a-z0-9]([a-z0-9-]*[a-z0-9])?$,maxLength=44"`
	Desired Desired `json:"desired,omitempty" jsonschema:"enum=running,enum=absent,default=running"` // default running
	// Size is how many members there are to be; 0 is none. Either size or max is given.
	Size *int `json:"size,omitempty" jsonschema:"minimum=0,maximum=10000"`
	// Min and Max bound the size where people set it with requests (scale). It begins at min.
	Min int `json:"min,omitempty" jsonschema:"minimum=0,maximum=10000"`
	Max int `json:"max,omitempty" jsonschema:"minimum=1,maximum=10000"`
	// Template says how each member should be.
	Template Spec `json:"template,omitzero"`
	// Spread bounds how many members may be in one place.
	Spread Spread `json:"spread,omitzero"`
	// Rotation replaces members by age. Without it they stay.
	Rotation *Rotation `json:"rotation,omitempty"`
	// Update says how members are replaced and changed.
	Update Update `json:"update,omitzero"`
	// ScaleDown says which of the healthy members go first when the pool shrinks.
	ScaleDown string `json:"scaleDown,omitempty" jsonschema:"enum=newest,enum=oldest,default=newest"`
}

// MaxPoolSize is the most members that a pool may ask for, and the most surge.
const MaxPoolSize = 10_000

// Bounds returns what a pool's size may be; min is max where the document gives the size.
func (p *PoolIntent) Bounds() (min, max int) {
	if p.Size != nil {
		return *p.Size, *p.Size
	}
	return p.Min, p.Max
}

// Ages returns a rotation's durations; both are 0 where r is nil. A document that was
// accepted has no others.
func (r *Rotation) Ages() (maxAge, jitter time.Duration, err error) {
	if r == nil {
		return 0, 0, nil
	}
	if maxAge, err = time.ParseDuration(r.MaxAge); err != nil || r.Jitter == "" {
		return maxAge, maxAge / 10, err
	}
	jitter, err = time.ParseDuration(r.Jitter)
	return maxAge, jitter, err
}

// Spread bounds how many members of a pool may be in one place. Within that they are
// always spread: over zones first, then over hosts. 0 is no bound.
type Spread struct {
	MaxPerHost int `json:"maxPerHost,omitempty" jsonschema:"minimum=0"`
	MaxPerZone int `json:"maxPerZone,omitempty" jsonschema:"minimum=0"`
}

// Rotation replaces members by age, counted from when a member was bound to its host.
// Durations are written as 30m, 24h or 1h30m.
type Rotation struct {
	// MaxAge is the age that no member should pass; at least 1m.
	MaxAge string `json:"maxAge" jsonschema:"pattern=^([0-9]+(\\.[0-9]+)?(h|m|s))+$"`
	// Jitter is how much earlier a member may be due, so that members of one age are not
	// all due at once. A tenth of maxAge where it is left out.
	Jitter string `json:"jitter,omitempty" jsonschema:"pattern=^([0-9]+(\\.[0-9]+)?(h|m|s))+$"`
}

// Update says how members are replaced, for whatever reason, and changed in place.
type Update struct {
	// MaxUnavailable is how many of the size may be missing meanwhile. With 0, the default,
	// a replacement is healthy before the old member goes.
	MaxUnavailable int `json:"maxUnavailable,omitempty" jsonschema:"minimum=0"`
	// Surge is how many members may exist beyond the size meanwhile; default 1. It may be 0
	// where maxUnavailable is not.
	Surge *int `json:"surge,omitempty" jsonschema:"minimum=0,default=1"`
}

// PoolRecord is the inventory's view of one pool, in the pools bucket.
type PoolRecord struct {
	Type         string  `json:"type"`
	Pool         string  `json:"pool"`
	Accepted     bool    `json:"accepted"` // whether the newest intent is the one in force
	Field        string  `json:"field,omitempty"`
	Reason       string  `json:"reason,omitempty"`
	IntentSeq    uint64  `json:"intentSeq"` // of the newest intent, accepted or not
	Desired      Desired `json:"desired,omitempty"`
	Size         int     `json:"size"`         // members wanted now
	Min          int     `json:"min"`          // what people may scale it to,
	Max          int     `json:"max"`          // both equal to the size where that is declared
	MinAvailable int     `json:"minAvailable"` // healthy members that are never given up
	Paused       bool    `json:"paused,omitempty"`

	Members  int `json:"members"`            // that are, or are being made; those that leave left out
	Ready    int `json:"ready"`              // of them: run, and have an address
	Failed   int `json:"failed,omitempty"`   // of them: cannot be made, or were unhealthy for long
	Leaving  int `json:"leaving,omitempty"`  // not yet gone
	Updating int `json:"updating,omitempty"` // of the members: wait for the newest template, or take it on
	Rotating int `json:"rotating,omitempty"` // of the members: to be replaced for another reason

	Waiting    string      `json:"waiting,omitempty"` // why it is not as it should be, for people
	Conditions []Condition `json:"conditions,omitempty"`
}

// PoolLedger is the leader's own record of what it decided for a pool. Its members' entries
// name the pool, so it does not list them.
type PoolLedger struct {
	Type      string      `json:"type"`
	Kind      string      `json:"kind"` // "pool"
	Name      string      `json:"name"`
	IntentSeq uint64      `json:"intentSeq,omitempty"` // of the accepted document
	Accepted  *PoolIntent `json:"accepted,omitempty"`
	Last      uint64      `json:"last,omitempty"`   // highest number that a member ever had
	Size      int         `json:"size,omitempty"`   // that people set, between min and max
	Paused    bool        `json:"paused,omitempty"` // nothing is replaced, added or removed
	// RotateBefore is when a person last asked for a rotation: members that are older are due.
	RotateBefore time.Time `json:"rotateBefore,omitzero"`
	Failures     int       `json:"failures,omitempty"`   // replacements in a row that failed
	FailedLast   uint64    `json:"failedLast,omitempty"` // Last as it was then: a later member that comes up ends the row
	RetryAt      time.Time `json:"retryAt,omitzero"`     // failed members are not replaced before
}
