//go:build real

package images

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

func TestWaitersShareOneDownloadAndOneThatLeavesDoesNotEndIt(t *testing.T) {
	image, dir := qcow2(t, "a"), t.TempDir()
	o := newOrigin(t, image)
	begun, proceed := make(chan struct{}), make(chan struct{})
	o.next(func(w http.ResponseWriter, _ *http.Request, image []byte) {
		w.Header().Set("Content-Length", fmt.Sprint(len(image)))
		_, _ = w.Write(image[:1000])
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-proceed
		_, _ = w.Write(image[1000:])
	})
	c := newCache(t, Options{})
	s := Source{Key: "k", URL: o.URL, Digest: sha(image)}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.Fetch(ctx, dir, s, nil)
		left <- err
	}()
	<-begun
	var done atomic.Int32
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if _, err := c.Fetch(t.Context(), dir, s, nil); err == nil {
				done.Add(1)
			}
		})
	}
	waitFor(t, func() bool { return c.waiting() == 4 })
	cancel()
	if err := <-left; !backends.Ended(err) {
		t.Errorf("the one that left got %v", err)
	}
	close(proceed)
	wg.Wait()
	if done.Load() != 3 || len(o.requests()) != 1 {
		t.Errorf("%d of 3 have the base after %d requests, want all after one", done.Load(), len(o.requests()))
	}
}

func TestTheLastOneToLeaveEndsTheDownload(t *testing.T) {
	o := newOrigin(t, qcow2(t, "a"))
	begun, ended := make(chan struct{}), make(chan struct{})
	o.next(func(_ http.ResponseWriter, r *http.Request, _ []byte) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	})
	c := newCache(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	_, err := c.Fetch(ctx, t.TempDir(), Source{Key: "k", URL: o.URL}, nil)
	if !backends.Ended(err) {
		t.Errorf("got %v, want the end of the context", err)
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the download goes on though nobody waits")
	}
}

func TestTwoAgentsOnOneDirectoryFetchOnce(t *testing.T) {
	image, dir := qcow2(t, "a"), t.TempDir()
	o := newOrigin(t, image)
	begun, proceed := make(chan struct{}), make(chan struct{})
	o.next(func(w http.ResponseWriter, _ *http.Request, image []byte) {
		close(begun)
		<-proceed
		_, _ = w.Write(image)
	})
	s := Source{Key: "k", URL: o.URL, Digest: sha(image)}
	var wg sync.WaitGroup
	for i := range 2 {
		c := newCache(t, Options{})
		if i == 1 {
			<-begun
			time.AfterFunc(100*time.Millisecond, func() { close(proceed) })
		}
		wg.Go(func() {
			if _, err := c.Fetch(t.Context(), dir, s, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(o.requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}
