//go:build real

package images

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

func TestADownloadThatBreaksOffIsResumed(t *testing.T) {
	image := qcow2(t, "a")
	for name, digest := range map[string]string{"with a digest": sha(image), "with an entity tag": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := newOrigin(t, image)
			o.next(cutOff(350_000))
			s := Source{Key: "k", URL: o.URL, Digest: digest}
			_, err := newCache(t, Options{}).Fetch(t.Context(), dir, s, nil)
			wantClass(t, err, backends.ErrTransient)
			fetch(t, newCache(t, Options{}), dir, s)
			if got := o.requests(); len(got) != 2 || got[1] != "bytes=350000-" {
				t.Errorf("asked for %v, want the rest from byte 350000", got)
			}
		})
	}
}

func TestADownloadWhoseImageChangedStartsAnew(t *testing.T) {
	dir := t.TempDir()
	o := newOrigin(t, qcow2(t, "a"))
	o.next(cutOff(350_000))
	s := Source{Key: "k", URL: o.URL}
	_, err := newCache(t, Options{}).Fetch(t.Context(), dir, s, nil)
	wantClass(t, err, backends.ErrTransient)
	o.mu.Lock()
	o.image = qcow2(t, "b")
	o.mu.Unlock()
	if got := fetch(t, newCache(t, Options{}), dir, s); got.Digest != sha(o.image) {
		t.Errorf("two images were mixed: %+v", got)
	}
}

func TestAMixedDownloadWithADigestIsThrownAwayAndTriedAgain(t *testing.T) {
	dir := t.TempDir()
	want := qcow2(t, "b")
	o := newOrigin(t, qcow2(t, "a"))
	o.next(func(w http.ResponseWriter, r *http.Request, image []byte) { // no entity tag
		w.Header().Set("Content-Length", fmt.Sprint(len(image)))
		_, _ = w.Write(image[:350_000])
		panic(http.ErrAbortHandler)
	})
	s := Source{Key: "k", URL: o.URL, Digest: sha(want)}
	_, err := newCache(t, Options{}).Fetch(t.Context(), dir, s, nil)
	wantClass(t, err, backends.ErrTransient)
	o.mu.Lock()
	o.image = want
	o.mu.Unlock()
	_, err = newCache(t, Options{}).Fetch(t.Context(), dir, s, nil)
	wantClass(t, err, backends.ErrTransient)
	fetch(t, newCache(t, Options{}), dir, s)
}

func TestADownloadThatWasWholeWhenTheAgentDiedIsNotFetchedAgain(t *testing.T) {
	image, dir := qcow2(t, "a"), t.TempDir()
	o := newOrigin(t, image)
	s := Source{Key: "k", URL: o.URL, Digest: sha(image)}
	ctx := backends.WithSteps(t.Context(), func(label string) error {
		if label == "image.publish" {
			return errors.New("killed")
		}
		return nil
	})
	if _, err := newCache(t, Options{}).Fetch(ctx, dir, s, nil); err == nil {
		t.Fatal("the step did not fail")
	}
	fetch(t, newCache(t, Options{}), dir, s)
	if got := o.requests(); len(got) != 2 || got[1] != fmt.Sprintf("bytes=%d-", len(image)) {
		t.Errorf("asked for %v, want nothing but the confirmation", got)
	}
}

func TestAServerThatStallsIsGivenUp(t *testing.T) {
	dir := t.TempDir()
	o := newOrigin(t, qcow2(t, "a"))
	for name, serve := range map[string]func(http.ResponseWriter, *http.Request, []byte){
		"before its answer": func(_ http.ResponseWriter, r *http.Request, _ []byte) { <-r.Context().Done() },
		"in the middle": func(w http.ResponseWriter, r *http.Request, image []byte) {
			_, _ = w.Write(image[:1000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			o.next(serve)
			began := time.Now()
			_, err := newCache(t, Options{Stall: 100 * time.Millisecond}).Fetch(t.Context(), dir, Source{Key: name, URL: o.URL}, nil)
			wantClass(t, err, backends.ErrTransient)
			if backends.Ended(err) || !strings.Contains(err.Error(), "no byte came") {
				t.Errorf("got %v, want the stall as the reason, not the end of a context", err)
			}
			if time.Since(began) > 5*time.Second {
				t.Error("it took too long")
			}
		})
	}
}

func TestAnswersThatAreNoImageHaveTheirClass(t *testing.T) {
	for code, class := range map[int]error{
		404: backends.ErrPermanent, 403: backends.ErrPermanent, 410: backends.ErrPermanent,
		429: backends.ErrTransient, 408: backends.ErrTransient, 500: backends.ErrTransient, 503: backends.ErrTransient, 204: backends.ErrTransient,
	} {
		o := newOrigin(t, nil)
		o.next(func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(code) })
		_, err := newCache(t, Options{}).Fetch(t.Context(), t.TempDir(), Source{Key: "k", URL: o.URL}, nil)
		if backends.Class(err) != class {
			t.Errorf("%d: got %v, want %v", code, err, class)
		}
	}
}

func TestAServerThatIsNotThereIsTransientAndShowsNoSecret(t *testing.T) {
	o := newOrigin(t, nil)
	url := strings.Replace(o.URL, "://", "://user:hunter2@", 1) + "/i.qcow2?sig=hunter3"
	o.Close()
	_, err := newCache(t, Options{}).Fetch(t.Context(), t.TempDir(), Source{Key: "k", URL: url}, nil)
	wantClass(t, err, backends.ErrTransient)
	if strings.Contains(err.Error(), "hunter") {
		t.Errorf("the error shows a secret: %v", err)
	}
}

func TestARedirectIsFollowed(t *testing.T) {
	image := qcow2(t, "a")
	o := newOrigin(t, image)
	from := httptest.NewServer(http.RedirectHandler(o.URL+"/image", http.StatusFound))
	defer from.Close()
	fetch(t, newCache(t, Options{}), t.TempDir(), Source{Key: "k", URL: from.URL, Digest: sha(image)})
}

func TestALengthIsNotNeededButAnEndIs(t *testing.T) {
	image := qcow2(t, "a")
	o := newOrigin(t, image)
	o.next(func(w http.ResponseWriter, _ *http.Request, image []byte) {
		_, _ = w.Write(image[:5000])
		_ = http.NewResponseController(w).Flush() // chunked from here on
		_, _ = w.Write(image[5000:])
	})
	fetch(t, newCache(t, Options{}), t.TempDir(), Source{Key: "chunked", URL: o.URL})

	endless := func(w http.ResponseWriter, _ *http.Request, image []byte) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.0 200 OK\r\n\r\n" + string(image))
		_ = rw.Flush()
	}
	o.next(endless)
	_, err := newCache(t, Options{}).Fetch(t.Context(), t.TempDir(), Source{Key: "endless", URL: o.URL}, nil)
	wantClass(t, err, backends.ErrPermanent)
	o.next(endless)
	fetch(t, newCache(t, Options{}), t.TempDir(), Source{Key: "endless", URL: o.URL, Digest: sha(image)})
}

func TestAnImageOverTheLimitIsRefusedAndKeepsNothing(t *testing.T) {
	image := qcow2(t, "a")
	o := newOrigin(t, image)
	for _, chunked := range []bool{false, true} {
		if chunked {
			o.next(func(w http.ResponseWriter, _ *http.Request, image []byte) {
				_ = http.NewResponseController(w).Flush()
				_, _ = w.Write(image)
			})
		}
		dir := t.TempDir()
		_, err := newCache(t, Options{MaxBytes: int64(len(image)) - 1}).Fetch(t.Context(), dir, Source{Key: "k", URL: o.URL}, nil)
		wantClass(t, err, backends.ErrPermanent)
		if n := left(t, dir); len(n) > 0 {
			t.Errorf("left: %v", n)
		}
	}
}

func TestAnImageThatLeavesLessThanTheReserveIsNoCapacityAndKeepsNothing(t *testing.T) {
	dir := t.TempDir()
	o := newOrigin(t, qcow2(t, "a"))
	_, err := newCache(t, Options{ReserveBytes: 1 << 60}).Fetch(t.Context(), dir, Source{Key: "k", URL: o.URL}, nil)
	wantClass(t, err, backends.ErrNoCapacity)
	if n := left(t, dir); len(n) > 0 {
		t.Errorf("left: %v", n)
	}
}
