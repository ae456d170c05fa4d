package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Installation names one fleet and the making of its streams.
type Installation struct {
	ID          string // ULID, made by Bootstrap only
	Incarnation string // ULID of this making of the streams
}

// BootstrapOptions size a new installation.
type BootstrapOptions struct {
	ID       string // default: a new ULID
	Replicas int    // of every stream and bucket; default 1
	MaxHosts int    // sets MaxConsumers of the assignments; default 10,000
	MaxBytes int64  // of each stream and bucket, reserved on the server; default 1 GiB
}

func (o BootstrapOptions) withDefaults() BootstrapOptions {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.MaxHosts == 0 {
		o.MaxHosts = defaultMaxHosts
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = defaultMaxBytes
	}
	return o
}

// Bootstrap makes the streams and buckets of a new installation. Run again with the same
// or no ID it changes nothing and returns what is there; streams of another installation
// are ErrWrongInstallation. A bootstrap that was cut short is finished by the next one; once
// it was finished, a stream that is missing is ErrNotBootstrapped and is not made anew.
//
// A cluster that cannot place a stream may be just coming up: it is asked again for
// [formingTime], or until ctx ends.
func Bootstrap(ctx context.Context, js jetstream.JetStream, names Names, opts BootstrapOptions) (Installation, error) {
	opts = opts.withDefaults()
	forming, cancel := context.WithTimeout(ctx, formingTime)
	defer cancel()
	again := newRetry(retryMin, retryMax)
	for {
		inst, err := bootstrap(ctx, js, names, opts)
		if !mayBeForming(err) || again.wait(forming) != nil {
			return inst, err
		}
	}
}

// formingTime is how long a cluster may take from its first answer until it can place a
// stream: servers that restart find each other within seconds.
const formingTime = 20 * time.Second

// mayBeForming reports whether err is what a server answers whose cluster has not found
// together yet. It says the same where a server stays away.
func mayBeForming(err error) bool {
	return isTemporary(err) || apiCode(err) == codeNoPeers
}

// bootstrap is one attempt at [Bootstrap].
func bootstrap(ctx context.Context, js jetstream.JetStream, names Names, opts BootstrapOptions) (Installation, error) {
	if opts.ID != "" && !ValidULID(opts.ID) {
		return Installation{}, fmt.Errorf("installation id %q is not a lower-case ULID", opts.ID)
	}
	found, err := findStreams(ctx, js, names)
	if err != nil {
		return Installation{}, err
	}
	inst, complete, err := found.installation(opts.ID)
	if err != nil {
		return Installation{}, err
	}
	if complete {
		if missing := found.missing; len(missing) > 0 {
			return Installation{}, missingError(missing, inst)
		}
		return inst, openBuckets(ctx, js, names, found.assignments, inst)
	}
	if inst.ID == "" {
		inst = Installation{ID: opts.ID, Incarnation: NewULID()}
		if inst.ID == "" {
			inst.ID = NewULID()
		}
	}
	if inst, err = claim(ctx, js, streamConfigs(names, opts, inst)[0]); err != nil {
		return Installation{}, err
	}
	if opts.ID != "" && inst.ID != opts.ID {
		return Installation{}, fmt.Errorf("%w: %s was made at the same moment", ErrWrongInstallation, inst.ID)
	}
	configs := streamConfigs(names, opts, inst)
	for _, cfg := range configs[1:] {
		if _, err := makeStream(ctx, js, cfg); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return Installation{}, fmt.Errorf("make stream %s: %w", cfg.Name, err)
		}
	}
	if err := openBuckets(ctx, js, names, configs[0], inst); err != nil {
		return Installation{}, err
	}
	done := configs[0]
	done.Metadata = inst.metadata()
	done.Metadata[metaComplete] = "true"
	if err := changeStream(ctx, js, done); err != nil {
		return Installation{}, fmt.Errorf("mark the bootstrap as finished: %w", err)
	}
	return inst, nil
}

// claim makes the first stream. Of two bootstraps at once, whoever makes it has named the
// installation, and the other one joins in.
func claim(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (Installation, error) {
	_, err := makeStream(ctx, js, cfg)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return Installation{}, fmt.Errorf("make stream %s: %w", cfg.Name, err)
	}
	s, err := streamOf(ctx, js, cfg.Name)
	if err != nil {
		return Installation{}, fmt.Errorf("look up stream %s: %w", cfg.Name, err)
	}
	return installationOf(s.CachedInfo().Config.Metadata), nil
}

// foundStreams is what findStreams saw.
type foundStreams struct {
	by          map[string]Installation // stream → its metadata
	missing     []string
	assignments jetstream.StreamConfig
}

func findStreams(ctx context.Context, js jetstream.JetStream, names Names) (foundStreams, error) {
	f := foundStreams{by: map[string]Installation{}}
	for _, name := range []string{names.Assignments(), names.LeaseStream(), names.States(), names.Events(), names.Intents()} {
		s, err := streamOf(ctx, js, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			f.missing = append(f.missing, name)
			continue
		}
		if err != nil {
			return f, fmt.Errorf("look up stream %s: %w", name, err)
		}
		cfg := s.CachedInfo().Config
		f.by[name] = installationOf(cfg.Metadata)
		if name == names.Assignments() {
			f.assignments = cfg
		}
	}
	return f, nil
}

// installation is the one that every stream names; wanted is its id, or empty for any. It
// is zero where there is no stream at all.
func (f foundStreams) installation(wanted string) (inst Installation, complete bool, err error) {
	for name, i := range f.by {
		switch {
		case i.ID == "":
			return inst, false, fmt.Errorf("%w: stream %s names no installation; it was not made by a bootstrap", ErrWrongInstallation, name)
		case wanted != "" && i.ID != wanted:
			return inst, false, fmt.Errorf("%w: stream %s belongs to %s, not to %s", ErrWrongInstallation, name, i.ID, wanted)
		case inst.ID != "" && i != inst:
			return inst, false, fmt.Errorf("%w: stream %s is of %s/%s, others of %s/%s (installation/incarnation)",
				ErrWrongInstallation, name, i.ID, i.Incarnation, inst.ID, inst.Incarnation)
		}
		inst = i
	}
	complete = f.assignments.Metadata[metaComplete] == "true"
	// The assignments are made first: other streams without them mean that they were lost.
	if f.assignments.Name == "" && len(f.by) > 0 {
		complete = true
	}
	return inst, complete, nil
}

func missingError(missing []string, inst Installation) error {
	return fmt.Errorf("%w: installation %s lacks %v; a lost stream is not made anew by itself: restore it from a backup, or make it anew without one (bootstrap --remake)",
		ErrNotBootstrapped, inst.ID, missing)
}

// openBuckets makes the buckets that are missing, sized like the assignments.
func openBuckets(ctx context.Context, js jetstream.JetStream, names Names, like jetstream.StreamConfig, inst Installation) error {
	for _, b := range bucketNames(names) {
		if _, err := openBucket(ctx, js, b, like, inst); err != nil {
			return err
		}
	}
	return nil
}

// openBucket makes a bucket where it is missing.
func openBucket(ctx context.Context, js jetstream.JetStream, bucket string, like jetstream.StreamConfig, inst Installation) (made bool, err error) {
	s, err := streamOf(ctx, js, bucketStream(bucket))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		made = true
		s, err = makeStream(ctx, js, bucketConfig(bucket, like.Replicas, like.MaxBytes, inst))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			s, err = streamOf(ctx, js, bucketStream(bucket))
		}
	}
	if err != nil {
		return made, fmt.Errorf("open bucket %s: %w", bucket, err)
	}
	cfg := s.CachedInfo().Config
	if cfg.AllowAtomicPublish || cfg.Replicas == 1 && like.Replicas == 1 {
		return made, nil
	}
	// The client library switches it off at every update of its own.
	cfg.AllowAtomicPublish = true
	if err := changeStream(ctx, js, cfg); err != nil {
		return made, fmt.Errorf("allow batches in bucket %s (it is derived: delete it, and it is made anew as it should be): %w", bucket, err)
	}
	return made, nil
}
