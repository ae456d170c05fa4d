package bus

// The exported surface that coordinators and agents build on.

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrFenced says that another leader has taken over: nothing was written, and nothing
	// will be under this fence.
	ErrFenced = errors.New("another coordinator has taken the lead")
	// ErrLeaseHeld says that another coordinator leads.
	ErrLeaseHeld = errors.New("another coordinator leads")
	// ErrNotBootstrapped says that the streams are missing; nothing is made by itself.
	ErrNotBootstrapped = errors.New("this fleet is not bootstrapped")
	// ErrWrongInstallation says that the streams belong to another installation.
	ErrWrongInstallation = errors.New("the streams belong to another installation")
	// ErrStreamFull says that a stream is over its limits.
	ErrStreamFull = errors.New("stream is full")
)

// Installation names one fleet and the making of its streams.
type Installation struct {
	ID          string // ULID, made by Bootstrap only
	Incarnation string // ULID of this making of the streams
}

// ClientConfig says how to reach NATS. Files are read at every connect, so that they can
// be rotated. The zero value connects to nats.DefaultURL.
type ClientConfig struct {
	URL          string `yaml:"url" json:"url"`
	Credentials  string `yaml:"credentials" json:"credentials"` // .creds file
	NKeySeed     string `yaml:"nkeySeed" json:"nkeySeed"`       // file with an nkey seed
	User         string `yaml:"user" json:"user"`               // with PasswordFile
	PasswordFile string `yaml:"passwordFile" json:"passwordFile"`
	CA           string `yaml:"ca" json:"ca"`     // PEM file
	Cert         string `yaml:"cert" json:"cert"` // PEM file, with Key
	Key          string `yaml:"key" json:"key"`
	APIPrefix    string `yaml:"apiPrefix" json:"apiPrefix"` // of JetStream, where it is imported from another account
}

// Connect returns at once, with a connection that keeps trying for ever: unlimited and
// jittered reconnects, retried first connect, pings every 15 s, authentication errors
// are retried, inbox prefix of its own ("_INBOX_<name>"). name shows in the server's
// connection list. extra options come last (tests use in-process connections).
func Connect(cfg ClientConfig, name string, log *slog.Logger, extra ...nats.Option) (*nats.Conn, error) {
	panic("bus: Connect")
}

// JetStream returns the JetStream context for cfg (its API prefix) with the options that
// the project needs.
func JetStream(nc *nats.Conn, cfg ClientConfig) (jetstream.JetStream, error) {
	panic("bus: JetStream")
}

// ServerConfig is for the embedded server.
type ServerConfig struct {
	Host       string // default 127.0.0.1
	Port       int    // 0: in-process only unless Listen; -1: any free port
	StoreDir   string // JetStream on disk
	SyncAlways bool   // fsync every write: guarantees hold through a power cut
	Log        *slog.Logger
}

// Server is an embedded nats-server with JetStream.
type Server struct{}

// StartServer starts an embedded server and waits until it is ready (10 s at most).
func StartServer(cfg ServerConfig) (*Server, error) { panic("bus: StartServer") }

// URL is where clients reach the server; empty when it is in-process only.
func (s *Server) URL() string { panic("bus: URL") }

// InProcess is the client option that connects without a socket.
func (s *Server) InProcess() nats.Option { panic("bus: InProcess") }

// Close stops the server and waits until its store is closed.
func (s *Server) Close() { panic("bus: Close") }

// BootstrapOptions size a new installation.
type BootstrapOptions struct {
	ID       string // default: a new ULID
	Replicas int    // of every stream and bucket; default 1
	MaxHosts int    // sets MaxConsumers of the assignments; default 10,000
	MaxBytes int64  // of each stream; default 1 GiB
}

// Bootstrap makes the streams and buckets of a new installation. Run again with the same
// or no ID it changes nothing and returns what is there; streams of another installation
// are ErrWrongInstallation.
func Bootstrap(ctx context.Context, js jetstream.JetStream, names Names, opts BootstrapOptions) (Installation, error) {
	panic("bus: Bootstrap")
}

// Fleet is an opened installation, for coordinators.
type Fleet struct{}

// Open checks that every stream is there and belongs to installation id (any, when id is
// empty), and makes missing buckets anew, since they are derived. Missing streams are
// ErrNotBootstrapped.
func Open(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, names Names, id string, log *slog.Logger) (*Fleet, error) {
	panic("bus: Open")
}

func (f *Fleet) Installation() Installation { panic("bus") }
func (f *Fleet) Names() Names               { panic("bus") }

// Msg is one stored message.
type Msg struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Header  nats.Header
	Data    []byte // empty for a delete marker or a message without a body
}

// Follow delivers a stream's messages that match filter (empty: all), from its first
// sequence on, then live ones, until ctx ends or handle fails. caughtUp is called once,
// after the last message that was there when Follow began. It survives reconnects and
// server restarts without a gap in newest documents; when the stream's sequences went
// backwards (restored, recreated) it ends with an error that says so. No durable is used.
func (f *Fleet) Follow(ctx context.Context, stream, filter string, handle func(Msg) error, caughtUp func()) error {
	panic("bus: Follow")
}

// Lease is the leader's sign of life.
type Lease struct{}

// NewLease names the candidate. ttl ≥ 1 s.
func (f *Fleet) NewLease(holder string, ttl time.Duration) *Lease { panic("bus") }

// Acquire takes the lease, or returns ErrLeaseHeld.
func (l *Lease) Acquire(ctx context.Context) error { panic("bus") }

// Wait returns when the lease may be free: it expired, was released, or ctx ended.
func (l *Lease) Wait(ctx context.Context) error { panic("bus") }

// Renew extends it; ErrLeaseHeld when it was lost.
func (l *Lease) Renew(ctx context.Context) error { panic("bus") }

// Release gives it up, so that a standby takes over at once.
func (l *Lease) Release(ctx context.Context) error { panic("bus") }

// Leader writes under one fence. Its methods are called by one goroutine at a time, so
// that one batch is in flight.
type Leader struct{}

// Lead rewrites the fence of the assignments and of every bucket: from then on no write of
// an earlier leader is stored. Call it with the lease taken, then Follow everything to its
// end, then write.
func (f *Fleet) Lead(ctx context.Context, holder string) (*Leader, error) { panic("bus: Lead") }

// Term counts takeovers.
func (l *Leader) Term() uint64 { panic("bus") }

// Write is one message of a batch.
type Write struct {
	Subject string
	Data    []byte
	Header  nats.Header // traceparent
}

// Commit stores ledger entries, assignments and tombstones as one atomic batch (split at
// 1,000 messages, in order). When the outcome is not known it repeats the same batch until
// it is acked or refused, or ctx ends. ErrFenced: nothing was stored and the lead is lost.
func (l *Leader) Commit(ctx context.Context, writes []Write) error { panic("bus: Commit") }

// KVWrite sets a key, or purges it when Value is nil.
type KVWrite struct {
	Key   string
	Value []byte
}

// CommitBucket is Commit for one bucket. A bucket that is missing is made anew and
// reported as ErrBucketRecreated: the caller writes everything again.
func (l *Leader) CommitBucket(ctx context.Context, bucket string, writes []KVWrite) error {
	panic("bus: CommitBucket")
}

// ErrBucketRecreated says that a bucket was missing and is empty now.
var ErrBucketRecreated = errors.New("bucket was missing and has been made anew")

// Retire removes a tombstone and then the state of its uid, each by its exact sequence; a
// newer message on either subject is left alone. It checks the fence first.
func (l *Leader) Retire(ctx context.Context, assign, state Msg) error { panic("bus: Retire") }

// ForgetLedger removes a ledger entry by its exact sequence.
func (l *Leader) ForgetLedger(ctx context.Context, entry Msg) error { panic("bus") }

// AdmitHost makes the durable consumer of a host, or brings it up to date.
func (f *Fleet) AdmitHost(ctx context.Context, host string) error { panic("bus: AdmitHost") }

// UnpinHost lets a new session of a host pull at once.
func (f *Fleet) UnpinHost(ctx context.Context, host string) error { panic("bus") }

// ResyncHost delivers all of a host's assignments again.
func (f *Fleet) ResyncHost(ctx context.Context, host string) error { panic("bus") }

// HostPulls tells whether somebody waits for the host's assignments right now.
func (f *Fleet) HostPulls(ctx context.Context, host string) (bool, error) { panic("bus") }

// PublishEvent stores an event once, however often it is repeated with the same id.
func (f *Fleet) PublishEvent(ctx context.Context, subject, id string, e Event) error { panic("bus") }

// PublishIntent stores an intent and returns its sequence. ErrStreamFull past the alarm.
func (f *Fleet) PublishIntent(ctx context.Context, subject string, doc []byte) (uint64, error) {
	panic("bus")
}

// Usage is how full a stream is, 0 to 1, by the nearest of its limits.
func (f *Fleet) Usage(ctx context.Context, stream string) (float64, error) { panic("bus") }

// Beats calls handle for every beat, until ctx ends.
func (f *Fleet) Beats(ctx context.Context, handle func(host string, b Beat)) error { panic("bus") }

// HostLink is an agent's side of the bus. It needs no right to create or list anything.
type HostLink struct{}

// OpenHost returns the link of one host. It does not block.
func OpenHost(nc *nats.Conn, js jetstream.JetStream, names Names, host string, log *slog.Logger) *HostLink {
	panic("bus: OpenHost")
}

// Delivery is one recorded-to-be assignment. Doc is nil for a marker (a deleted message):
// ack and ignore. A body that is not an assignment has Err.
type Delivery struct {
	Seq    uint64
	UID    string // of the subject
	Proxy  string
	Doc    *Assignment
	Err    error
	Header nats.Header
}

// Assignments pulls the host's assignments, at most MaxPull at a time. handle must have
// them on disk when it returns nil; they are acked then. It waits for the consumer to be
// made, rebinds with jittered backoff when it is deleted, and returns only when ctx ends.
func (l *HostLink) Assignments(ctx context.Context, handle func([]Delivery) error) error {
	panic("bus: Assignments")
}

// Consumer tells installation and incarnation from the consumer's metadata; ok is false
// while there is no consumer yet. It is refreshed by Assignments at every bind.
func (l *HostLink) Consumer() (i Installation, ok bool) { panic("bus") }

// PutState publishes a state, newest wins per subject, and repeats it until it is stored.
// It never blocks.
func (l *HostLink) PutState(s State, header nats.Header) { panic("bus: PutState") }

// PutHost is PutState for the host document.
func (l *HostLink) PutHost(h Host) { panic("bus") }

// Beat publishes a beat; it is lost while disconnected.
func (l *HostLink) Beat(b Beat) error { panic("bus") }

// Flush waits until everything put was stored, or ctx ends.
func (l *HostLink) Flush(ctx context.Context) error { panic("bus") }

// Close stops the publisher; what was not stored is dropped.
func (l *HostLink) Close() { panic("bus") }
