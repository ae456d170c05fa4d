package bus

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Limits and times of streams and buckets.
const (
	defaultMaxHosts = 10_000
	defaultMaxBytes = 1 << 30
	leaseMaxBytes   = 1 << 20
	maxEvents       = 1_000_000
	eventMaxAge     = 30 * 24 * time.Hour
	eventDedupe     = 10 * time.Minute
	// markerTTL is how long the mark of a purged or expired key stays, so that a view that
	// was away for less sees the deletion and not only its absence.
	markerTTL = time.Hour
	// removalTTL is how long a removal of a message stays; nobody needs it.
	removalTTL = time.Minute
	// spareConsumers of the assignments beside one for each host: a few readers without a
	// durable for each coordinator, and people who look.
	spareConsumers = 100
)

// Keys of a stream's or consumer's metadata.
const (
	metaInstallation = "io.proxyfleet.installation"
	metaIncarnation  = "io.proxyfleet.incarnation"
	metaHostID       = "io.proxyfleet.host"
	metaWord         = "io.proxyfleet.word"
	metaRecovery     = "io.proxyfleet.recovery"
	metaRecovers     = "io.proxyfleet.recovers"
	metaAsked        = "io.proxyfleet.asked"
	metaAsk          = "io.proxyfleet.ask"
	metaComplete     = "io.proxyfleet.complete" // "true" once every stream was made
)

func (i Installation) metadata() map[string]string {
	return map[string]string{metaInstallation: i.ID, metaIncarnation: i.Incarnation}
}

func installationOf(metadata map[string]string) Installation {
	return Installation{ID: metadata[metaInstallation], Incarnation: metadata[metaIncarnation]}
}

// streamConfigs are the streams of an installation, in the order in which they are made.
// The assignments come first: they tell whether a bootstrap was finished.
//
// All keep the last message of a subject and refuse new ones when full, but the events:
// with the default (discard old) a full stream drops somebody's document in silence. None
// allows purge or rollup: one message with "Nats-Rollup: all" wipes a stream. AllowDirect
// stays off, so that the fence and the lease are always read from the stream's leader.
func streamConfigs(names Names, opts BootstrapOptions, inst Installation) []jetstream.StreamConfig {
	last := jetstream.StreamConfig{
		Retention:         jetstream.LimitsPolicy,
		Storage:           jetstream.FileStorage,
		Replicas:          opts.Replicas,
		Discard:           jetstream.DiscardNew,
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxBytes:          opts.MaxBytes,
		MaxConsumers:      -1,
		MaxMsgSize:        -1,
		DenyPurge:         true,
		Metadata:          inst.metadata(),
	}

	assignments := last
	assignments.Name = names.Assignments()
	assignments.Description = "Assignments and tombstones of hosts, the ledger and the fence; only the leader writes"
	assignments.Subjects = []string{names.AllAssign(), names.AllLedger(), names.Fence()}
	assignments.AllowAtomicPublish = true
	assignments.AllowMsgTTL = true // for removals
	// A server allows 1,000 consumers of a stream unless it is told otherwise here.
	assignments.MaxConsumers = opts.MaxHosts + spareConsumers

	intents := last
	intents.Name = names.Intents()
	intents.Description = "Intents: what people want, the newest of each name"
	intents.Subjects = []string{names.AllIntents()}
	intents.MaxMsgSize = MaxIntentBytes + maxHeaderBytes

	lease := last
	lease.Name = names.LeaseStream()
	lease.Description = "Sign of life of the leading coordinator"
	lease.Subjects = []string{names.Lease()}
	lease.MaxBytes = leaseMaxBytes
	lease.AllowMsgTTL = true

	states := last
	states.Name = names.States()
	states.Description = "States: what agents see, the newest of each uid and host"
	states.Subjects = []string{names.AllStates()}
	states.AllowMsgTTL = true // for removals
	states.AllowAtomicPublish = true

	events := last
	events.Name = names.Events()
	events.Description = "Events for people, by age and count"
	events.Subjects = []string{names.AllEvents()}
	events.Discard = jetstream.DiscardOld
	events.MaxMsgsPerSubject = -1
	events.MaxMsgs = maxEvents
	events.MaxAge = eventMaxAge
	events.Duplicates = eventDedupe
	events.PersistMode = persistDerived(opts.Replicas)

	return []jetstream.StreamConfig{assignments, lease, states, events, intents}
}

// maxHeaderBytes is room for trace context and what clients add, beside the document.
const maxHeaderBytes = 4 << 10

// bucketConfig is a bucket as the client library makes it, but for how writes are kept:
// with replicas as batches, without them asynchronously (see [persistDerived]).
func bucketConfig(bucket string, replicas int, maxBytes int64, inst Installation) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                   bucketStream(bucket),
		Description:            "Derived by the leading coordinator, which makes it anew when it is lost",
		Subjects:               []string{bucketKey(bucket, ">")},
		Storage:                jetstream.FileStorage,
		Replicas:               replicas,
		Discard:                jetstream.DiscardNew,
		MaxMsgsPerSubject:      1,
		MaxMsgs:                -1,
		MaxBytes:               maxBytes,
		MaxConsumers:           -1,
		MaxMsgSize:             -1,
		AllowRollup:            true,
		AllowDirect:            true,
		DenyDelete:             true,
		AllowMsgTTL:            true,
		SubjectDeleteMarkerTTL: markerTTL,
		Duplicates:             2 * time.Minute, // the server's default
		AllowAtomicPublish:     replicas > 1,
		PersistMode:            persistDerived(replicas),
		Metadata:               inst.metadata(),
	}
}

// persistDerived is how streams are kept on disk that say nothing that is not known from
// elsewhere. A server that syncs every write would spend half of its syncs on them, before
// the writes that people wait for; a server that is killed may lose their last
// milliseconds. With replicas the server allows no choice.
func persistDerived(replicas int) jetstream.PersistModeType {
	if replicas > 1 {
		return jetstream.DefaultPersistMode
	}
	return jetstream.AsyncPersistMode
}

func bucketNames(names Names) []string {
	return []string{names.Proxies(), names.Pools(), names.Hosts(), names.Endpoints()}
}

// bucketStream is the stream behind a bucket; bucketKey the subject of a key.
func bucketStream(bucket string) string   { return "KV_" + bucket }
func bucketKey(bucket, key string) string { return "$KV." + bucket + "." + key }
