package bus_test

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func TestKeysAreSetAndPurgedUnderTheFence(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	ctx := bustest.Context(t)
	l := bustest.Lead(t, f, "a")
	bucket := f.Names().Proxies()
	kv, err := js.KeyValue(ctx, bucket)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := kv.WatchAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	fill := make([]bus.KVWrite, 0, 20) // more than a few: one batch
	for _, k := range "abcdefghijklmnopqrst" {
		fill = append(fill, bus.KVWrite{Key: string(k), Value: []byte("1")})
	}
	for _, writes := range [][]bus.KVWrite{
		fill,
		{{Key: "a"}},
		{{Key: "b"}, {Key: "c", Value: []byte("2")}},
	} {
		if err := l.CommitBucket(ctx, bucket, writes); err != nil {
			t.Fatal(err)
		}
	}
	bustest.NoKey(t, js, bucket, "a")
	bustest.NoKey(t, js, bucket, "b")
	e, err := kv.Get(ctx, "c")
	if err != nil || string(e.Value()) != "2" {
		t.Errorf("c: got %v, %v", e, err)
	}
	purged := map[string]bool{}
	for len(purged) < 2 {
		select {
		case e := <-watch.Updates():
			if e != nil && e.Operation() == jetstream.KeyValuePurge {
				purged[e.Key()] = true
			}
		case <-ctx.Done():
			t.Fatalf("watchers saw the purge of %v only", purged)
		}
	}
	// The marks of purged keys leave by themselves.
	st, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.GetLastMsgForSubject(ctx, "$KV."+bucket+".a")
	if err != nil || m.Header.Get(jetstream.MsgTTLHeader) == "" {
		t.Errorf("mark of a: %v, %v; want one with a TTL", m, err)
	}
}

func TestABucketThatWasLostIsMadeAnewAndSaid(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	ctx := bustest.Context(t)
	l := bustest.Lead(t, f, "a")
	bucket := f.Names().Hosts()
	writes := []bus.KVWrite{{Key: "h1", Value: []byte("{}")}}
	if err := js.DeleteKeyValue(ctx, bucket); err != nil {
		t.Fatal(err)
	}
	if err := l.CommitBucket(ctx, bucket, writes); !errors.Is(err, bus.ErrBucketRecreated) {
		t.Fatalf("got %v, want ErrBucketRecreated", err)
	}
	if err := l.CommitBucket(ctx, bucket, writes); err != nil {
		t.Fatal(err)
	}
	// Somebody else makes it anew, by an update of the client library even without batches.
	if err := js.DeleteKeyValue(ctx, bucket); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
	if err := l.CommitBucket(ctx, bucket, writes); !errors.Is(err, bus.ErrBucketRecreated) {
		t.Fatalf("made by another: got %v, want ErrBucketRecreated", err)
	}
	batch := append([]bus.KVWrite(nil), writes...)
	for range 20 {
		batch = append(batch, bus.KVWrite{Key: bus.NewULID(), Value: []byte("{}")})
	}
	if err := l.CommitBucket(ctx, bucket, batch); err != nil {
		t.Errorf("a batch afterwards: %v", err)
	}
}

// A leader that was replaced must not take a bucket over when it finds it missing.
func TestALostBucketIsNotMadeAnewByALeaderThatWasReplaced(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	ctx := bustest.Context(t)
	old := bustest.Lead(t, f, "a")
	bustest.Lead(t, s.Open("other"), "b")
	bucket := f.Names().Pools()
	if err := js.DeleteKeyValue(ctx, bucket); err != nil {
		t.Fatal(err)
	}
	if err := old.CommitBucket(ctx, bucket, []bus.KVWrite{{Key: "x", Value: []byte("{}")}}); !errors.Is(err, bus.ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
	if _, err := js.KeyValue(ctx, bucket); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("bucket: got %v, want none", err)
	}
}
