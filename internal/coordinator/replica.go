package coordinator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/run"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/coordinator/core"
)

// replica follows the streams that the model is made of, for as long as a model lives: from
// standing by to the end of a term. There is no other way in which a model comes about.
type replica struct {
	fleet   *bus.Fleet
	streams []string
	audited string // the stream whose subjects are counted: what it lacks would be decided anew
	send    func(input)
	loaded  chan struct{} // closed once everything was sent on that was stored at the beginning

	mu       sync.Mutex // guards the fields that follow
	loading  int        // streams that are not read to their end yet
	loadedAt time.Time
	seq      map[string]uint64    // of the last message that was sent on, by stream
	live     map[string]bool      // subjects of the audited stream that hold something
	ended    map[string]time.Time // and those that were ended: their markers go by themselves
}

func newReplica(fleet *bus.Fleet, send func(input)) *replica {
	n := fleet.Names()
	r := &replica{fleet: fleet, send: send, streams: []string{n.Intents(), n.Assignments(), n.States()}, audited: n.Assignments(),
		loaded: make(chan struct{}), seq: map[string]uint64{}, live: map[string]bool{}, ended: map[string]time.Time{}}
	r.loading = len(r.streams)
	return r
}

// follow sends messages on until ctx ends.
func (r *replica) follow(ctx context.Context) error {
	var g run.Group
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, stream := range r.streams {
		g.Add(func() error {
			err := r.fleet.Follow(ctx, stream, "", func(m bus.Msg) error {
				r.send(core.Message(m))
				r.note(stream, m)
				return nil
			}, r.caughtUp)
			return fmt.Errorf("follow %s: %w", stream, err)
		}, func(error) { cancel() })
	}
	return g.Run()
}

func (r *replica) note(stream string, m bus.Msg) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq[stream] = m.Seq
	if stream != r.audited {
		return
	}
	if len(m.Data) > 0 {
		r.live[m.Subject] = true
		delete(r.ended, m.Subject)
		return
	}
	delete(r.live, m.Subject)
	r.ended[m.Subject] = time.Now()
}

func (r *replica) caughtUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loading--; r.loading == 0 {
		r.loadedAt = time.Now()
		close(r.loaded)
	}
}

// catchUp returns once everything was sent on that is stored now, with the last sequence of
// each stream.
func (r *replica) catchUp(ctx context.Context) (ends map[string]uint64, err error) {
	ends = map[string]uint64{}
	for _, stream := range r.streams {
		end, _, err := r.fleet.End(ctx, stream)
		if err != nil {
			return nil, err
		}
		ends[stream] = end
		for r.at(stream) < end {
			// What is behind may have been removed, or replaced by what comes after the end.
			next, err := r.fleet.Next(ctx, stream, r.at(stream))
			if err != nil {
				return nil, err
			}
			if next == 0 || next > end {
				break
			}
			if sleep(ctx, catchUpPoll); ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	return ends, nil
}

const catchUpPoll = 2 * time.Millisecond

func (r *replica) at(stream string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq[stream]
}

const (
	// markerLife is for how long a marker may be seen as stored; they go after a minute.
	markerLife = 2 * time.Minute
	// trusted is how long what was just read needs no audit: no marker can have gone unseen.
	trusted = 30 * time.Second
)

// audit compares how many subjects hold something with what was followed. They differ when a
// marker went by itself while the connection was away, when somebody removed messages, or when
// a server that was killed brings back what had been removed: then a model that has followed
// for long knows what one that reads anew would not.
func (r *replica) audit(ctx context.Context) error {
	c, err := r.count(ctx)
	if err == nil && (c.stored < c.least || c.stored > c.most) {
		return c.stale(r.audited)
	}
	return err
}

// auditReturns is audit for a leader, which has what was removed in its model still and would
// not decide better without: it is only asked for what came back, and is to be ended again.
func (r *replica) auditReturns(ctx context.Context) error {
	c, err := r.count(ctx)
	if err == nil && c.stored > c.most {
		return c.stale(r.audited)
	}
	return err
}

// counted is how many subjects hold something, and how many should.
type counted struct{ stored, least, most int }

func (c counted) stale(stream string) error {
	return fmt.Errorf("%w: %d subjects of %s hold something, %d to %d are known", errStale, c.stored, stream, c.least, c.most)
}

// count is zero while something is on its way.
func (r *replica) count(ctx context.Context) (counted, error) {
	end, subjects, err := r.fleet.End(ctx, r.audited)
	if err != nil {
		return counted{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seq[r.audited] != end || time.Since(r.loadedAt) < trusted {
		return counted{}, nil
	}
	for subject, at := range r.ended {
		if time.Since(at) > markerLife {
			delete(r.ended, subject)
		}
	}
	return counted{stored: int(subjects), least: len(r.live), most: len(r.live) + len(r.ended)}, nil
}

const auditEvery = time.Minute

// watch calls audit from time to time until ctx ends. What could not be asked is asked again.
func watch(ctx context.Context, audit func(context.Context) error) error {
	for {
		if sleep(ctx, auditEvery); ctx.Err() != nil {
			return nil
		}
		if err := audit(ctx); isStale(err) {
			return err
		}
	}
}
