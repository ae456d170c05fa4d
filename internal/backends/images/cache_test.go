package images

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

// qcow2 returns a small real image; text makes its content differ.
func qcow2(t testing.TB, text string) []byte {
	t.Helper()
	dir := t.TempDir()
	raw, path := filepath.Join(dir, "raw"), filepath.Join(dir, "image")
	must(t, os.WriteFile(raw, []byte(text+strings.Repeat("\x00", 1<<20)), 0o600))
	qemuImg(t, "convert", "-f", "raw", "-O", "qcow2", raw, path)
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func qemuImg(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %v: %v\n%s", args, err, out)
	}
}

func sha(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// origin serves one image, and remembers what it was asked.
type origin struct {
	*httptest.Server
	mu    sync.Mutex // guards the fields that follow
	image []byte
	asked []string // the Range header of each request, "-" where there was none
	// serve replaces the whole answer to the next request.
	serve func(w http.ResponseWriter, r *http.Request, image []byte)
}

func newOrigin(t testing.TB, image []byte) *origin {
	o := &origin{image: image}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		rng := r.Header.Get("Range")
		if rng == "" {
			rng = "-"
		}
		o.asked = append(o.asked, rng)
		serve, image := o.serve, o.image
		o.serve = nil
		o.mu.Unlock()
		if serve != nil {
			serve(w, r, image)
			return
		}
		w.Header().Set("ETag", `"`+sha(image)[7:20]+`"`)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(image)))
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *origin) next(serve func(w http.ResponseWriter, r *http.Request, image []byte)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.serve = serve
}

func (o *origin) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.asked...)
}

// cutOff sends the first n bytes of the image, promises all of it, and hangs up.
func cutOff(n int) func(http.ResponseWriter, *http.Request, []byte) {
	return func(w http.ResponseWriter, _ *http.Request, image []byte) {
		w.Header().Set("ETag", `"`+sha(image)[7:20]+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(image)))
		_, _ = w.Write(image[:n])
		panic(http.ErrAbortHandler)
	}
}

func newCache(t testing.TB, opts Options) *Cache {
	c := New(opts)
	t.Cleanup(c.Close)
	return c
}

func fetch(t testing.TB, c *Cache, dir string, s Source) Base {
	t.Helper()
	b, err := c.Fetch(t.Context(), dir, s, nil)
	if err != nil {
		t.Fatalf("fetch: %v", err)
	}
	return b
}

func wantClass(t testing.TB, err, class error) {
	t.Helper()
	if backends.Class(err) != class {
		t.Fatalf("got %v, want class %v", err, class)
	}
}

// left names what is in the cache's directory beside whole bases.
func left(t testing.TB, dir string) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*", StateDir + "/*", ".*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		must(t, err)
		for _, f := range found {
			if base := filepath.Base(f); base != StateDir && base != "." && base != ".." {
				names = append(names, base)
			}
		}
	}
	return names
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnImageIsFetchedOnceAndFoundByEverybodyAfterwards(t *testing.T) {
	image, dir := qcow2(t, "a"), t.TempDir()
	o := newOrigin(t, image)
	s := Source{Key: "debian", URL: o.URL + "/debian.qcow2?token=verysecret", Digest: sha(image)}
	var percents []int
	first, err := newCache(t, Options{}).Fetch(t.Context(), dir, s, func(p int) { percents = append(percents, p) })
	must(t, err)
	second := fetch(t, newCache(t, Options{}), dir, s) // another agent's start
	if first != second || len(o.requests()) != 1 {
		t.Errorf("got %+v and %+v after %d requests, want one base and one request", first, second, len(o.requests()))
	}
	got, err := os.ReadFile(first.Path)
	must(t, err)
	if string(got) != string(image) || first.VirtualSize < 1<<20 || first.Format != "qcow2" {
		t.Errorf("the base differs from the image: %+v", first)
	}
	if len(percents) == 0 || percents[len(percents)-1] != 100 {
		t.Errorf("progress was %v, want it to end at 100", percents)
	}
	info, err := os.Stat(first.Path)
	must(t, err)
	if info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v: QEMU's user could not read it", info.Mode())
	}
	if want := []string{filepath.Base(first.Path), "base-" + short(first.Digest) + ".json"}; fmt.Sprint(left(t, dir)) != fmt.Sprint(want) {
		t.Errorf("in the directory: %v, want %v", left(t, dir), want)
	}
}

func TestASha512DigestIsVerified(t *testing.T) {
	image, dir := qcow2(t, "a"), t.TempDir()
	o := newOrigin(t, image)
	sum := sha512.Sum512(image)
	fetch(t, newCache(t, Options{}), dir, Source{Key: "k", URL: o.URL, Digest: "sha512:" + hex.EncodeToString(sum[:])})
	sum[0]++
	_, err := newCache(t, Options{}).Fetch(t.Context(), dir, Source{Key: "k", URL: o.URL, Digest: "sha512:" + hex.EncodeToString(sum[:])}, nil)
	wantClass(t, err, backends.ErrPermanent)
}

func TestAWrongDigestIsPermanentAndKeepsNothing(t *testing.T) {
	dir := t.TempDir()
	o := newOrigin(t, qcow2(t, "a"))
	_, err := newCache(t, Options{}).Fetch(t.Context(), dir, Source{Key: "k", URL: o.URL, Digest: sha([]byte("other"))}, nil)
	wantClass(t, err, backends.ErrPermanent)
	if n := left(t, dir); len(n) > 0 {
		t.Errorf("left: %v", n)
	}
}

func TestWithoutADigestTheFirstContentPinsTheEntry(t *testing.T) {
	dir := t.TempDir()
	o := newOrigin(t, qcow2(t, "a"))
	s := Source{Key: "k", URL: o.URL}
	first := fetch(t, newCache(t, Options{}), dir, s)
	o.mu.Lock()
	o.image = qcow2(t, "b")
	o.mu.Unlock()
	if again := fetch(t, newCache(t, Options{}), dir, s); again != first {
		t.Errorf("the entry moved on: got %+v, want %+v", again, first)
	}
	if moved := fetch(t, newCache(t, Options{}), dir, Source{Key: "k", URL: o.URL + "/b"}); moved.Digest == first.Digest {
		t.Error("a changed entry kept the pinned content")
	}
	// The base was removed by hand: what the source has now is not what was pinned.
	must(t, os.Remove(first.Path))
	_, err := newCache(t, Options{}).Fetch(t.Context(), dir, s, nil)
	wantClass(t, err, backends.ErrPermanent)
	if !strings.Contains(err.Error(), "changed since") {
		t.Errorf("the error does not say why: %v", err)
	}
}

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

func TestALocalFileIsCopiedSoThatItMayChange(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(file, qcow2(t, "a"), 0o600))
	s := Source{Key: "k", File: file}
	first := fetch(t, newCache(t, Options{}), dir, s)
	must(t, os.WriteFile(file, qcow2(t, "b"), 0o600))
	if again := fetch(t, newCache(t, Options{}), dir, s); again != first {
		t.Errorf("got %+v, want the pinned %+v", again, first)
	}
	_, err := newCache(t, Options{}).Fetch(t.Context(), dir, Source{Key: "gone", File: file + ".gone"}, nil)
	wantClass(t, err, backends.ErrPermanent)
}

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

func TestSourcesThatCannotBeUsedAreRefused(t *testing.T) {
	for _, s := range []Source{
		{}, {URL: "http://x/y", File: "/z"}, {File: "relative"}, {URL: "ftp://x/y"}, {URL: "file:///etc/passwd"}, {URL: "http://"},
		{URL: "http://x/y", Format: "vmdk"}, {URL: "http://x/y", Digest: "md5:00"}, {URL: "http://x/y", Digest: "sha256:" + strings.Repeat("A", 64)},
		{URL: "http://x/y", Digest: "sha256:../../../../etc/passwd"},
	} {
		_, err := newCache(t, Options{}).Fetch(t.Context(), t.TempDir(), s, nil)
		if backends.Class(err) != backends.ErrPermanent {
			t.Errorf("%+v: got %v, want Permanent", s, err)
		}
	}
}

// waiting counts callers of Fetch.
func (c *Cache) waiting() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.flights {
		n += len(f.waiting)
	}
	return n
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it did not come")
}
