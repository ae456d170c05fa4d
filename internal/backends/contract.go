package backends

import (
	"context"
	"net/netip"
	"time"

	"proxyfleet/internal/secret"
)

// Backend makes proxies real on one host.
type Backend interface {
	// Kind is the backend's name as placement knows it: "local", "libvirt", …
	Kind() string

	// Offer says what this host can run now. Capacity is of the whole host for proxies,
	// what runs already included.
	Offer(ctx context.Context) (Offer, error)

	// Ensure brings the instance of req.Ref to req.Desired and to req's generation,
	// resuming whatever an earlier call left, also one that was killed at any point.
	// It is idempotent by uid. It returns once the instance runs (or is stopped), whether or
	// not an address is known: the agent asks Get for that. A nil error means the instance
	// is as asked. It never adopts an object that lacks our mark or carries another uid
	// (ErrConflict), and asks for capacity before it makes anything (ErrNoCapacity).
	// Each step is reported; report never blocks. A spec that differs from what exists in a
	// field that cannot change in place is ErrPermanent; the coordinator does not ask for it.
	Ensure(ctx context.Context, req Request, report func(Progress)) (Instance, error)

	// Get reads one instance. ErrNotFound only when the backend said that it is not there;
	// a read that failed is ErrTransient or ErrHostFault, never "gone". An object under our
	// name without our mark and uid is ErrConflict.
	Get(ctx context.Context, ref Ref) (Instance, error)

	// Delete removes the instance and everything made for its uid. nil means that nothing
	// is left. It is idempotent, works on half-made things, and never touches what lacks our
	// mark (ErrConflict: nothing was removed).
	Delete(ctx context.Context, ref Ref) error

	// List returns every instance and leftover that carries the mark of this installation
	// and host id, and says which parts could not be read: what is missing from a listing
	// with Unread parts is not gone.
	List(ctx context.Context) (Listing, error)

	// Check gives a verdict for each target, without disturbing other calls, within ctx.
	Check(ctx context.Context) []TargetHealth

	// InPlace names the spec fields that Ensure changes without a new uid, beside desired.
	InPlace() []Field

	// Close ends connections and goroutines; instances stay as they are.
	Close() error
}

// Watcher is a backend that can tell when something happened. The agent wakes its loop for
// the uid and reads with Get; an event carries no state.
type Watcher interface {
	// Watch sends until ctx ends, reconnecting by itself; the channel is closed then. An
	// event without a uid means: anything may have changed, list again (sent after every
	// reconnect).
	Watch(ctx context.Context) <-chan Event
}

// ImageKeeper is a backend that keeps base images on its host, for people who look after
// them and for images that are fetched before anybody asks.
type ImageKeeper interface {
	// ListImages returns the bases that are whole, those first that were not asked for the
	// longest, and behind them what fetches are at or have left.
	ListImages(ctx context.Context) ([]BaseImage, error)
	// PullImage fetches the image of a key of the host's images, or finds it there. Errors
	// are those of Ensure's download.
	PullImage(ctx context.Context, key string, report func(Progress)) (BaseImage, error)
	// PruneImages removes what fetches have left, and bases, those first that were not asked for
	// the longest, until they take limit bytes at most. It never removes what is in use, or was
	// asked for within the last hour.
	PruneImages(ctx context.Context, limit int64) (removed []BaseImage, err error)
}

// BaseImage is an image that instances are made from.
type BaseImage struct {
	Digest       string // "sha256:<hex>" or "sha512:<hex>" of what was fetched
	Format       string
	Source       string // where it came from, without secrets
	Path         string // on the host
	Bytes        int64  // that it takes
	VirtualBytes int64  // of the disk that a guest sees
	Asked        time.Time
	InUse        bool // an instance was made on it
	// Unfinished says that it is no base, but what a fetch has made on the way to one; InUse
	// then, that the fetch is under way. Only Source, Path, Bytes and Asked may be known.
	Unfinished bool
}

// Tidier is a backend that has to remove, from time to time, what it began and what no listing
// can name, because it bears no mark yet.
type Tidier interface {
	// Tidy removes what is surely of this owner and surely given up.
	Tidy(ctx context.Context) error
}

// Event wakes the loop.
type Event struct {
	UID    string // empty: list again
	Reason string // for logs: "Stopped", "AgentConnected", …
}

// Owner is who our marks say we are.
type Owner struct {
	Installation string
	HostID       string
}

// Ref names one binding to a backend.
type Ref struct {
	Proxy string
	UID   string // lower-case ULID
}

// Desired is what Ensure brings an instance to. Absent is Delete.
type Desired string

const (
	Running Desired = "running"
	Stopped Desired = "stopped"
)

// Field is a part of a request that may change in place.
type Field string

const (
	FieldAuth      Field = "auth"
	FieldAllowFrom Field = "allowFrom"
	FieldEgress    Field = "egress"
	FieldPort      Field = "port"
	// A machine type may take a restart of the instance. A disk changes in place to a larger
	// one only: the coordinator replaces an instance whose disk is to shrink.
	FieldMachineType Field = "machineType"
	FieldDiskGiB     Field = "diskGiB"
)

// Request is one proxy as it should be, defaults filled in by the agent.
type Request struct {
	Ref
	Generation  uint64
	Desired     Desired
	Port        int // 0: the backend chooses, and keeps its choice for the uid
	Access      Access
	Image       string // key of the host's images, or a URL where allowed
	MachineType string // key of the host's machine types
	DiskGiB     int
	UserData    []byte // the user's own cloud-init, byte for byte
	// Zones are zones or regions of a cloud in the order of preference; empty: the host's
	// choice. Backends without them ignore it.
	Zones []string
	// Address is "internal", "external" or empty, the host's choice. Likewise.
	Address string
	// Pool is the pool whose member the proxy is; empty: none. Backends that cannot keep members
	// apart ignore it.
	Pool string
}

// Access is who may use a proxy and for what. Credentials, networks or both are always
// present in a valid request; a backend refuses one without (ErrPermanent).
type Access struct {
	Username     string
	Password     secret.String
	AllowFrom    []netip.Prefix
	Private      bool  // private ranges are allowed as destinations
	ConnectPorts []int // allowed for CONNECT beside 443
}

// Progress is one step of Ensure, for people.
type Progress struct {
	Step    string // "downloading image", "defining domain", …
	Percent int    // 1 to 100, 0 where unknown
}

// Status is what an instance does now.
type Status string

const (
	StatusRunning  Status = "Running"
	StatusStarting Status = "Starting"
	StatusStopped  Status = "Stopped"
	StatusPaused   Status = "Paused"  // suspended by somebody or by an I/O error; Reason says
	StatusCrashed  Status = "Crashed" // ended by itself
	StatusBroken   Status = "Broken"  // half-made or damaged: Ensure mends it
)

// Instance is a backend's object as read now.
type Instance struct {
	Mark      Mark
	ID        string // the backend's own: domain UUID, PID, …
	Status    Status
	Reason    string       // stable word for why, where there is one: "Destroyed", "IOError", …
	Message   string       // for people
	Addresses []netip.Addr // never loopback (but on local), link-local or unspecified
	Port      int
	// AddressUnread says that the sources of addresses failed, which is not "no address":
	// the agent keeps the last ones it knew.
	AddressUnread bool
	Generation    uint64 // of the request that it was last brought to
}

// Listing is everything of ours.
type Listing struct {
	Instances []Instance
	Leftovers []Leftover
	Unread    []Unread
}

// Leftover is a secondary resource of ours whose instance does not exist.
type Leftover struct {
	Mark Mark
	Kind string // "volume", "seed", "nvram", "state", …
	Name string
}

// Unread is a part of a listing that could not be read.
type Unread struct {
	What string
	Err  error
}

// TargetHealth is a verdict on one target.
type TargetHealth struct {
	Target  string // "socket", "pool/default", …
	Code    string // CheckOK or a stable reason
	Message string // what is wrong and what to do
	Details map[string]string
}

// Stable codes of checks.
const (
	CheckOK                     = "OK"
	CheckCredentialsUnavailable = "CredentialsUnavailable"
	CheckCertificateInvalid     = "CertificateInvalid"
	CheckHostKeyInvalid         = "HostKeyInvalid"
	CheckUnauthorized           = "Unauthorized"
	CheckForbidden              = "Forbidden"
	CheckUnreachable            = "Unreachable"
	CheckTimeout                = "Timeout"
	CheckPoolNotFound           = "PoolNotFound"
	CheckPoolNotActive          = "PoolNotActive"
	CheckNetworkNotFound        = "NetworkNotFound"
	CheckNetworkNotActive       = "NetworkNotActive"
	CheckNamespaceNotFound      = "NamespaceNotFound"
	CheckStorageNotFound        = "StorageNotFound"
	CheckTemplateNotFound       = "TemplateNotFound"
	CheckImageNotFound          = "ImageNotFound"
	CheckZoneNotFound           = "ZoneNotFound"
	CheckQuotaExhausted         = "QuotaExhausted"
	CheckAddressShared          = "AddressShared"
	CheckLowSpace               = "LowSpace"
	CheckLowMemory              = "LowMemory"
	CheckClockUnsynchronised    = "ClockUnsynchronised"
	CheckVirtUnavailable        = "VirtualisationUnavailable"
	CheckAPIError               = "APIError"
)

// Offer is what a host can run.
type Offer struct {
	Images             []string
	DefaultImage       string
	ImageURLs          bool
	MachineTypes       []Shape
	DefaultMachineType string
	DefaultDiskGiB     int
	Zones              []string // of a cloud, that a request may ask for; in the host's own order
	Capacity           Capacity
}

// Shape is a machine type with its name.
type Shape struct {
	Name      string
	VCPUs     int
	MemoryMiB int
}

// Capacity counts what a host has for proxies. A negative number is unlimited.
type Capacity struct {
	VCPUs, MemoryMiB, DiskGiB, Slots int
}

// Mark is written on an instance and on every secondary resource.
type Mark struct {
	Installation string
	HostID       string
	Proxy        string
	UID          string
	CreatedAt    time.Time // whole seconds, UTC; zero where unreadable
}

// Owned reports whether the mark is of o.
func (m Mark) Owned(o Owner) bool { return m.Installation == o.Installation && m.HostID == o.HostID }
