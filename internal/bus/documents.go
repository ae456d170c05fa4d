package bus

import "time"

// Type names of the documents, as they stand in their "type" field. Fields are only ever
// added to a type; a change of meaning needs a new version.
const (
	TypeIntent     = "io.proxyfleet.intent.v1"
	TypePool       = "io.proxyfleet.pool.v1" // what people publish for a pool
	TypeAssignment = "io.proxyfleet.assignment.v1"
	TypeState      = "io.proxyfleet.state.v1"
	TypeHost       = "io.proxyfleet.host.v1"
	TypeBeat       = "io.proxyfleet.beat.v1"
	TypeRecord     = "io.proxyfleet.record.v1"
	TypeHostRecord = "io.proxyfleet.hostrecord.v1"
	TypePoolRecord = "io.proxyfleet.poolrecord.v1"
	TypePoolLedger = "io.proxyfleet.poolledger.v1"
	TypeEndpoint   = "io.proxyfleet.endpoint.v1"
	TypeEvent      = "io.proxyfleet.event.v1"
	TypeLedger     = "io.proxyfleet.ledger.v1"
	TypeFence      = "io.proxyfleet.fence.v1"
	TypeLease      = "io.proxyfleet.lease.v1"
)

// Limits of an intent. A larger one is refused when it is accepted, not when delivered.
const (
	MaxIntentBytes   = 512 << 10
	MaxUserDataBytes = 256 << 10
	MaxProxyName     = 52 // a DNS label that leaves room for a pool's number
	MaxPoolName      = 44
	MaxPull          = 256 // assignments fetched, recorded and acked together
)

// Desired is what a person wants of a proxy.
type Desired string

const (
	DesiredRunning Desired = "running"
	DesiredStopped Desired = "stopped"
	DesiredAbsent  Desired = "absent"
)

// Phase is where a binding is, as people read it. One meaning on every backend.
type Phase string

const (
	PhasePending      Phase = "Pending"      // accepted, not yet taken up by a host
	PhaseProvisioning Phase = "Provisioning" // the host is making it
	PhaseRunning      Phase = "Running"      // runs and has an address
	PhaseDegraded     Phase = "Degraded"     // runs, fails its health check
	PhaseStopped      Phase = "Stopped"      // exists, does not run, as desired
	PhaseDeleting     Phase = "Deleting"     // being removed
	PhaseFailed       Phase = "Failed"       // cannot be made as asked; error says why
	PhaseGone         Phase = "Gone"         // nothing of it is left
	PhaseUnknown      Phase = "Unknown"      // its host is silent
)

// Assignment is an accepted intent bound to one host, or, with Desired absent and no
// spec, a tombstone: the only thing that ever deletes.
type Assignment struct {
	Type         string  `json:"type"`
	Installation string  `json:"installation"`
	Incarnation  string  `json:"incarnation"`
	HostID       string  `json:"hostId"`
	Proxy        string  `json:"proxy"`
	UID          string  `json:"uid"`
	Generation   uint64  `json:"generation"`
	IntentSeq    uint64  `json:"intentSeq"`
	Pool         string  `json:"pool,omitempty"`
	Desired      Desired `json:"desired"`
	Spec         *Spec   `json:"spec,omitempty"`
	Recovery     string  `json:"recovery,omitempty"` // last recovery when it was written, see [Admission]
}

// Tombstone reports whether the assignment says that its uid must not exist.
func (a Assignment) Tombstone() bool { return a.Desired == DesiredAbsent }

// State is what an agent saw of one uid.
type State struct {
	Type       string      `json:"type"`
	HostID     string      `json:"hostId"`
	Session    uint64      `json:"session"`
	Counter    uint64      `json:"counter"` // rises with every state of a session; a lower (session, counter) is dropped
	Proxy      string      `json:"proxy"`
	UID        string      `json:"uid"`
	Generation uint64      `json:"generation"` // of the assignment that this state answers
	Phase      Phase       `json:"phase"`
	Step       string      `json:"step,omitempty"`                                       // what is being done, for people
	Percent    int         `json:"percent,omitempty" jsonschema:"minimum=0,maximum=100"` // of the step, 0 where unknown
	Addresses  []Address   `json:"addresses,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	Error      *Error      `json:"error,omitempty"`
}

// Address is where a proxy can be reached.
type Address struct {
	Address string `json:"address"`
	Family  string `json:"family" jsonschema:"enum=ipv4,enum=ipv6"` // "ipv4" or "ipv6"
	Port    int    `json:"port" jsonschema:"minimum=1,maximum=65535"`
}

// Condition is one lasting fact about a proxy or host, with a stable reason.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status" jsonschema:"enum=True,enum=False,enum=Unknown"` // "True", "False" or "Unknown"
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Error crosses the bus as a stable code, the operation, and a text for people.
type Error struct {
	Code    string `json:"code"` // NotFound, NoCapacity, Transient, Permanent, HostFault, Conflict
	Op      string `json:"op,omitempty"`
	Message string `json:"message"`
}

// Host is what an agent says of its host.
type Host struct {
	Type      string            `json:"type"`
	HostID    string            `json:"hostId"`
	Session   uint64            `json:"session"`
	Counter   uint64            `json:"counter"`
	Backend   string            `json:"backend"`
	Zone      string            `json:"zone,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	InPlace   []string          `json:"inPlace,omitempty"` // spec fields changed without a new uid: "auth", "allowFrom", …
	Offer     Offer             `json:"offer"`
	Checks    []Check           `json:"checks,omitempty"`
	Unclaimed []Unclaimed       `json:"unclaimed,omitempty"`
	// Incarnation of the streams that it works for; empty before the first contact.
	Incarnation string `json:"incarnation,omitempty"`
	Version     string `json:"version,omitempty"` // of the agent
}

// Offer is what a host can run.
type Offer struct {
	Images             []string      `json:"images,omitempty"` // keys; empty: this host takes no image
	DefaultImage       string        `json:"defaultImage,omitempty"`
	ImageURLs          bool          `json:"imageUrls,omitempty"` // intents may name a URL
	MachineTypes       []MachineType `json:"machineTypes,omitempty"`
	DefaultMachineType string        `json:"defaultMachineType,omitempty"`
	DefaultDiskGiB     int           `json:"defaultDiskGiB,omitempty"`
	Zones              []string      `json:"zones,omitempty"` // of a cloud, that a spec may ask for
	Capacity           Capacity      `json:"capacity"`        // of the whole host for proxies: bound ones included
}

// MachineType is a named shape.
type MachineType struct {
	Name      string `json:"name"`
	VCPUs     int    `json:"vcpus"`
	MemoryMiB int    `json:"memoryMiB"`
}

// Capacity counts what a host has for proxies in total. A negative number means
// unlimited; 0 means none.
type Capacity struct {
	VCPUs     int `json:"vcpus"`
	MemoryMiB int `json:"memoryMiB"`
	DiskGiB   int `json:"diskGiB"`
	Slots     int `json:"slots"`
}

// Check is a verdict on one target of a host: a socket, pool, network, node.
type Check struct {
	Target  string            `json:"target"`
	Code    string            `json:"code"` // "OK" or a stable reason
	Message string            `json:"message,omitempty"`
	Details map[string]string `json:"details,omitempty"`
}

// Unclaimed is something with our marks that no assignment names.
type Unclaimed struct {
	Proxy string `json:"proxy"`
	UID   string `json:"uid"`
	Kind  string `json:"kind"` // "instance", "volume", "seed", …
}

// Beat tells that a host lives, and lets drift be noticed.
type Beat struct {
	Type        string `json:"type"`
	HostID      string `json:"hostId"`
	Session     uint64 `json:"session"`
	Incarnation string `json:"incarnation,omitempty"`
	Recovery    string `json:"recovery,omitempty"` // last that it accepted
	// Run is a ULID of this start of the agent. Two that alternate are two agents at once.
	Run    string `json:"run,omitempty"`
	Seq    uint64 `json:"seq"` // highest assignment sequence that was recorded
	Digest string `json:"digest"`
	Resync bool   `json:"resync,omitempty"` // the record was lost: deliver everything again
	// NoConsumer: the host's consumer is not there, so nothing reaches it until it is made.
	NoConsumer bool `json:"noConsumer,omitempty"`
}

// Record is the inventory's view of one proxy, in the proxies bucket.
type Record struct {
	Type       string      `json:"type"`
	Proxy      string      `json:"proxy"`
	Pool       string      `json:"pool,omitempty"`
	Pinned     bool        `json:"pinned,omitempty"` // a pool's member that no rotation replaces
	Accepted   bool        `json:"accepted"`         // whether the newest intent is the one in force
	Field      string      `json:"field,omitempty"`
	Reason     string      `json:"reason,omitempty"`
	IntentSeq  uint64      `json:"intentSeq"` // of the newest intent, accepted or not
	Desired    Desired     `json:"desired,omitempty"`
	Host       string      `json:"host,omitempty"`
	UID        string      `json:"uid,omitempty"`
	Generation uint64      `json:"generation,omitempty"`
	Phase      Phase       `json:"phase,omitempty"`
	Step       string      `json:"step,omitempty"`
	Percent    int         `json:"percent,omitempty"`
	Addresses  []Address   `json:"addresses,omitempty"`
	Conditions []Condition `json:"conditions,omitempty"`
	Error      *Error      `json:"error,omitempty"`
	Waiting    string      `json:"waiting,omitempty"` // why it has no host, for people
}

// HostRecord is the inventory's view of one host, in the hosts bucket.
type HostRecord struct {
	Type       string            `json:"type"`
	Host       string            `json:"host"`
	HostID     string            `json:"hostId"`
	Session    uint64            `json:"session"`
	Backend    string            `json:"backend"`
	Zone       string            `json:"zone,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Offer      Offer             `json:"offer"`
	Bound      Capacity          `json:"bound"` // what placed proxies take
	Conditions []Condition       `json:"conditions,omitempty"`
	Checks     []Check           `json:"checks,omitempty"`
	Unclaimed  []Unclaimed       `json:"unclaimed,omitempty"`
	Orders     *HostOrders       `json:"orders,omitempty"` // what people asked for it
	Drain      *DrainProgress    `json:"drain,omitempty"`  // while it is drained
}

// DrainProgress is how far a drain is. It is done when both numbers are 0: nothing of ours
// is left on the host.
type DrainProgress struct {
	Left    int      `json:"left"`              // proxies that are still bound to the host
	Leaving int      `json:"leaving"`           // placed elsewhere, not yet gone from the host
	Waiting []string `json:"waiting,omitempty"` // some of those left that fit nowhere else, with the reason
}

// Endpoint is a proxy that is healthy now, in the endpoints bucket under
// "<pool or _>.<proxy>". It never has a password.
type Endpoint struct {
	Type      string    `json:"type"`
	Proxy     string    `json:"proxy"`
	Pool      string    `json:"pool,omitempty"`
	UID       string    `json:"uid"`
	Host      string    `json:"host"`
	Zone      string    `json:"zone,omitempty"`
	Addresses []Address `json:"addresses"`
	Auth      bool      `json:"auth"` // credentials are needed
}

// Event tells people of one decision or fact.
type Event struct {
	Type    string    `json:"type"`
	Time    time.Time `json:"time"`
	Cause   string    `json:"cause"` // "intent", "host", "agent", "rotation", "health", "person", "leader"
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Proxy   string    `json:"proxy,omitempty"`
	Pool    string    `json:"pool,omitempty"`
	Host    string    `json:"host,omitempty"`
	UID     string    `json:"uid,omitempty"`
	Field   string    `json:"field,omitempty"`
	Seq     uint64    `json:"seq,omitempty"` // of the intent
}

// Refused is a host's lasting refusal of one intent.
type Refused struct {
	Host    string `json:"host"`
	UID     string `json:"uid"`   // whose state it was
	Offer   string `json:"offer"` // digest of the offer that it was refused under, capacity left out
	Message string `json:"message,omitempty"`
}
