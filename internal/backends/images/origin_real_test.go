//go:build real

package images

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
