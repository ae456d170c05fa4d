package bustest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// Eventually calls probe until it returns nil, and fails the test with its last error
// after [Deadline].
func Eventually(t testing.TB, what string, probe func() error) {
	t.Helper()
	deadline := time.Now().Add(Deadline)
	for {
		err := probe()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, Deadline, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Record waits for a proxy's record in the inventory that satisfies want.
func (s *Server) Record(js jetstream.JetStream, proxy string, want func(bus.Record) error) bus.Record {
	s.t.Helper()
	return Value(s.t, js, bus.Names{}.Proxies(), proxy, want)
}

// Value waits for a bucket's value under key, read as T, that satisfies want.
func Value[T any](t testing.TB, js jetstream.JetStream, bucket, key string, want func(T) error) T {
	t.Helper()
	var doc T
	Eventually(t, "key "+key+" of bucket "+bucket, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), Deadline)
		defer cancel()
		kv, err := js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		e, err := kv.Get(ctx, key)
		if err != nil {
			return err
		}
		if doc, err = bus.Decode[T](e.Value()); err != nil {
			return err
		}
		return want(doc)
	})
	return doc
}

// NoKey waits until a bucket has no such key.
func NoKey(t testing.TB, js jetstream.JetStream, bucket, key string) {
	t.Helper()
	Eventually(t, "no key "+key+" in bucket "+bucket, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), Deadline)
		defer cancel()
		kv, err := js.KeyValue(ctx, bucket)
		if err != nil {
			return err
		}
		_, err = kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			return nil
		}
		if err == nil {
			return errors.New("it is there")
		}
		return err
	})
}

// Ended waits until nothing is stored on the subjects of a stream that match filter, but
// removals.
func Ended(t testing.TB, js jetstream.JetStream, stream, filter string) {
	t.Helper()
	Eventually(t, "the end of "+filter+" in "+stream, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), Deadline)
		defer cancel()
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return err
		}
		for subject := range info.State.Subjects {
			m, err := s.GetLastMsgForSubject(ctx, subject)
			if err == nil && len(m.Data) > 0 {
				return fmt.Errorf("%s still holds %s", subject, m.Data)
			}
			if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
				return err
			}
		}
		return nil
	})
}

// Stream is what one [Follow] has seen.
type Stream struct {
	t      testing.TB
	caught chan struct{}
	done   chan error
	news   chan bus.Msg
	cancel context.CancelFunc

	mu   sync.Mutex // guards the field that follows
	last map[string]bus.Msg
}

// Follow follows a stream of f until the test ends.
func Follow(t testing.TB, f *bus.Fleet, stream, filter string) *Stream {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Stream{t: t, caught: make(chan struct{}), done: make(chan error, 1), news: make(chan bus.Msg, 1<<16),
		cancel: cancel, last: map[string]bus.Msg{}}
	go func() {
		s.done <- f.Follow(ctx, stream, filter, s.take, func() { close(s.caught) })
		close(s.done)
	}()
	t.Cleanup(func() {
		cancel()
		for range s.done {
		}
	})
	return s
}

func (s *Stream) take(m bus.Msg) error {
	s.mu.Lock()
	s.last[m.Subject] = m
	s.mu.Unlock()
	s.news <- m
	return nil
}

// CaughtUp waits until everything that was there at the start was seen.
func (s *Stream) CaughtUp() *Stream {
	s.t.Helper()
	select {
	case <-s.caught:
	case <-time.After(Deadline):
		s.t.Fatalf("not caught up within %v", Deadline)
	}
	return s
}

// Next waits for the next message.
func (s *Stream) Next() bus.Msg {
	s.t.Helper()
	select {
	case m := <-s.news:
		return m
	case <-time.After(Deadline):
		s.t.Fatalf("no message within %v", Deadline)
		return bus.Msg{}
	}
}

// Quiet fails the test if a message comes within d.
func (s *Stream) Quiet(d time.Duration) {
	s.t.Helper()
	select {
	case m := <-s.news:
		s.t.Fatalf("unexpected message on %s: %s", m.Subject, m.Data)
	case <-time.After(d):
	}
}

// Newest waits for a newest message on subject that satisfies want.
func (s *Stream) Newest(subject string, want func(bus.Msg) error) bus.Msg {
	s.t.Helper()
	var m bus.Msg
	Eventually(s.t, "message on "+subject, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		var ok bool
		if m, ok = s.last[subject]; !ok {
			return errors.New("there is none")
		}
		return want(m)
	})
	return m
}

// Err waits until the following has ended, and returns why.
func (s *Stream) Err() error {
	s.t.Helper()
	select {
	case err := <-s.done:
		return err
	case <-time.After(Deadline):
		s.t.Fatalf("still following after %v", Deadline)
		return nil
	}
}
