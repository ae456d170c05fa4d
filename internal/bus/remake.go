package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Remake makes one stream of an installation anew that was lost, sized like the others,
// which keep what they hold. A stream that is there is left as it is, with an error. Stop the
// coordinators first; a running one ends by itself, or goes on, and decides nothing wrongly.
//
// What the events, the lease and the states hold is only news, or said again by those who
// said it. Intents go on behind the highest sequence that the ledger accepted, which keeps
// what was accepted; what was published and not accepted is lost.
//
// Without the assignments there is no ledger: the fleet comes up frozen, under a new
// incarnation, so that hosts take nothing until a person recovers it. One that was cut short is
// finished by the next.
func Remake(ctx context.Context, js jetstream.JetStream, names Names, stream string, opts BootstrapOptions) (Installation, error) {
	found, err := findStreams(ctx, js, names)
	if err != nil {
		return Installation{}, err
	}
	all := streamConfigs(names, opts, Installation{})
	if !slices.ContainsFunc(all, func(c jetstream.StreamConfig) bool { return c.Name == stream }) {
		return Installation{}, fmt.Errorf("%q is no stream of %s; buckets are made anew by themselves", stream, names.root())
	}
	if stream == names.Assignments() {
		return remakeAssignments(ctx, js, names, found, opts)
	}
	inst, complete, err := found.installation(opts.ID)
	switch {
	case err != nil:
		return Installation{}, err
	case found.assignments.Name == "":
		return Installation{}, fmt.Errorf("%w: %s is missing as well, which knows more of the others: make it anew first", ErrNotBootstrapped, names.Assignments())
	case !complete:
		return Installation{}, fmt.Errorf("%w: the bootstrap of installation %s was cut short; run it again", ErrNotBootstrapped, inst.ID)
	case !slices.Contains(found.missing, stream):
		return Installation{}, errThere(stream)
	}
	opts.Replicas, opts.MaxBytes = found.assignments.Replicas, found.assignments.MaxBytes
	cfg := configOf(names, opts, inst, stream)
	if stream == names.Intents() {
		accepted, err := highestAccepted(ctx, js, names)
		if err != nil {
			return Installation{}, err
		}
		cfg.FirstSeq = accepted + 1
	}
	if _, err := makeStream(ctx, js, cfg); err != nil {
		return Installation{}, fmt.Errorf("make stream %s: %w", stream, err)
	}
	return inst, nil
}

func errThere(stream string) error {
	return fmt.Errorf("stream %s is there; nothing was changed", stream)
}

func configOf(names Names, opts BootstrapOptions, inst Installation, stream string) jetstream.StreamConfig {
	configs := streamConfigs(names, opts, inst)
	return configs[slices.IndexFunc(configs, func(c jetstream.StreamConfig) bool { return c.Name == stream })]
}

// remakeAssignments gives the other streams the new incarnation before it makes the stream,
// and calls that complete once it says that the fleet is frozen: until then no coordinator
// opens it.
func remakeAssignments(ctx context.Context, js jetstream.JetStream, names Names, found foundStreams, opts BootstrapOptions) (Installation, error) {
	stream := names.Assignments()
	if found.assignments.Metadata[metaComplete] == "true" {
		return Installation{}, errThere(stream)
	}
	inst := Installation{Incarnation: NewULID()}
	for name, i := range found.by {
		if i.ID == "" || inst.ID != "" && i.ID != inst.ID || opts.ID != "" && i.ID != opts.ID {
			return Installation{}, fmt.Errorf("%w: stream %s belongs to %q", ErrWrongInstallation, name, i.ID)
		}
		inst.ID = i.ID
	}
	if inst.ID == "" {
		return Installation{}, fmt.Errorf("%w: no stream is there; a bootstrap makes them all", ErrNotBootstrapped)
	}
	if made, ok := found.by[stream]; ok { // cut short behind the loop that follows
		inst = made
	}
	for name := range found.by {
		s, err := streamOf(ctx, js, name)
		if err != nil {
			return Installation{}, fmt.Errorf("look up stream %s: %w", name, err)
		}
		cfg := s.CachedInfo().Config
		opts.Replicas = cfg.Replicas
		if name == names.Intents() || name == names.States() {
			opts.MaxBytes = cfg.MaxBytes
		}
		cfg.Metadata[metaIncarnation] = inst.Incarnation
		if err := changeStream(ctx, js, cfg); err != nil {
			return Installation{}, fmt.Errorf("give stream %s the new incarnation: %w", name, err)
		}
	}
	cfg := configOf(names, opts.withDefaults(), inst, stream)
	if _, err := makeStream(ctx, js, cfg); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return Installation{}, fmt.Errorf("make stream %s: %w", stream, err)
	}
	frozen := Ledger{Type: TypeLedger, Kind: "fleet", Name: "fleet",
		Frozen: FrozenWord + stream + " was lost with the ledger in it, and made anew by a person"}
	if _, err := js.Publish(ctx, names.Ledger("fleet", "fleet"), Encode(frozen)); err != nil {
		return Installation{}, fmt.Errorf("freeze the fleet: %w", err)
	}
	cfg.Metadata[metaComplete] = "true"
	if err := changeStream(ctx, js, cfg); err != nil {
		return Installation{}, fmt.Errorf("mark stream %s as complete: %w", stream, err)
	}
	return inst, nil
}

// highestAccepted is the highest sequence of an intent that the ledger has accepted.
func highestAccepted(ctx context.Context, js jetstream.JetStream, names Names) (high uint64, err error) {
	cons, err := js.OrderedConsumer(ctx, names.Assignments(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{names.AllLedger()}})
	if err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	for left := cons.CachedInfo().NumPending; left > 0; {
		m, err := cons.Next(jetstream.FetchContext(ctx))
		if err != nil {
			return 0, fmt.Errorf("read the ledger: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return 0, fmt.Errorf("read the ledger: %w", err)
		}
		left = meta.NumPending
		entry, err := Decode[struct {
			IntentSeq uint64 `json:"intentSeq"`
		}](m.Data())
		if err == nil { // of a pool or a proxy; else it is a marker, or nobody's
			high = max(high, entry.IntentSeq)
		}
	}
	return high, nil
}
