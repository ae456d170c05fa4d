package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A host's consumer. Two agents on one durable would split the messages between them:
// with a pinned client only one of them is served, and the other waits.
const (
	pullGroup = "agent"
	// pullExpiry is how long one pull waits; an agent that is gone is noticed after it.
	pullExpiry = 5 * time.Second
	// pinnedTTL is how long a pin outlives the last pull: three of them may fail.
	pinnedTTL = 3 * pullExpiry
	// ackWait starts at delivery; an agent records and acks within it, or gets a harmless
	// repeat. What was sent into a connection that had just died comes again after it.
	ackWait = 5 * time.Second
)

// Admission is what a host's consumer says to agents, in its metadata: a host may read
// nothing else of the streams.
type Admission struct {
	HostID string // the only host that may use it; empty: any
	Word   string // why another one may not, for people; without HostID nobody may
	// Recovery is the last time that a person recovered the fleet, a ULID; empty: never.
	// Hosts that work for one of the incarnations in Recovers (joined by commas) take
	// assignments again after it, whatever sequences they had seen.
	Recovery, Recovers string
	// Asked is a host id whose agent is to say everything again, though it be refused: what
	// is stored of it was overwritten, or never came. Ask is a ULID of that wish.
	Asked, Ask string
}

func (a Admission) metadata(inst Installation) map[string]string {
	meta := inst.metadata()
	for key, value := range map[string]string{metaHostID: a.HostID, metaWord: a.Word, metaRecovery: a.Recovery, metaRecovers: a.Recovers,
		metaAsked: a.Asked, metaAsk: a.Ask} {
		if value != "" {
			meta[key] = value
		}
	}
	return meta
}

func admissionOf(metadata map[string]string) Admission {
	return Admission{HostID: metadata[metaHostID], Word: metadata[metaWord], Recovery: metadata[metaRecovery], Recovers: metadata[metaRecovers],
		Asked: metadata[metaAsked], Ask: metadata[metaAsk]}
}

// Refuses says why a host may not use the consumer, or nothing when it may.
func (a Admission) Refuses(hostID string) string {
	if a.HostID == hostID || a.HostID == "" && a.Word == "" {
		return ""
	}
	return a.Word
}

// Accepts reports whether a host that works for an incarnation, and has seen an earlier
// recovery or none, may take assignments although they are not what it knew.
func (a Admission) Accepts(incarnation, recovery string) bool {
	return a.Recovery != "" && a.Recovery != recovery && slices.Contains(strings.Split(a.Recovers, ","), incarnation)
}

// AdmitHost makes the durable consumer of a host, or brings it up to date.
func (f *Fleet) AdmitHost(ctx context.Context, host string, as Admission) error {
	ctx, cancel := attempt(ctx)
	defer cancel()
	_, err := f.js.CreateOrUpdateConsumer(ctx, f.names.Assignments(), jetstream.ConsumerConfig{
		Durable:        f.names.Consumer(host),
		Description:    "Assignments of host " + host,
		FilterSubject:  f.names.AssignHost(host),
		DeliverPolicy:  jetstream.DeliverAllPolicy,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        ackWait,
		MaxDeliver:     -1,
		MaxAckPending:  4 * MaxPull,
		PriorityPolicy: jetstream.PriorityPolicyPinned,
		PriorityGroups: []string{pullGroup},
		PinnedTTL:      pinnedTTL,
		Metadata:       as.metadata(f.inst),
	})
	if err != nil {
		return fmt.Errorf("make the consumer of host %s: %w", host, err)
	}
	return nil
}

// UnpinHost lets a new session of a host pull at once, instead of waiting until the pin of
// the old one has expired. Without a consumer there is no pin.
func (f *Fleet) UnpinHost(ctx context.Context, host string) error {
	ctx, cancel := attempt(ctx)
	defer cancel()
	s, err := f.js.Stream(ctx, f.names.Assignments())
	if err == nil {
		err = s.UnpinConsumer(ctx, f.names.Consumer(host), pullGroup)
	}
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) { // without one there is no pin
		return fmt.Errorf("unpin the consumer of host %s: %w", host, err)
	}
	return nil
}

// DismissHost removes the consumer of a host. One that is not there is no error.
func (f *Fleet) DismissHost(ctx context.Context, host string) error {
	ctx, cancel := attempt(ctx)
	defer cancel()
	err := f.js.DeleteConsumer(ctx, f.names.Assignments(), f.names.Consumer(host))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("remove the consumer of host %s: %w", host, err)
	}
	return nil
}

// ResyncHost delivers all of a host's assignments again. A consumer that is not there is
// made, which delivers everything as well.
func (f *Fleet) ResyncHost(ctx context.Context, host string, as Admission) error {
	ctx, cancel := attempt(ctx)
	defer cancel()
	// Asked first: the server does not answer a reset of a consumer that is not there.
	_, err := f.js.Consumer(ctx, f.names.Assignments(), f.names.Consumer(host))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return f.AdmitHost(ctx, host, as)
	}
	if err == nil {
		_, err = f.js.ResetConsumerToSequence(ctx, f.names.Assignments(), f.names.Consumer(host), 1)
	}
	if err != nil {
		return fmt.Errorf("reset the consumer of host %s: %w", host, err)
	}
	return nil
}

// HostPulls tells whether somebody waits for the host's assignments right now. Between two
// pulls nobody does for a moment, so it looks twice before it says no. Without a consumer
// nobody can.
func (f *Fleet) HostPulls(ctx context.Context, host string) (bool, error) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	for look := 0; ; look++ {
		c, err := f.js.Consumer(ctx, f.names.Assignments(), f.names.Consumer(host))
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look up the consumer of host %s: %w", host, err)
		}
		if c.CachedInfo().NumWaiting > 0 {
			return true, nil
		}
		if look == 1 {
			return false, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}
