//go:build real

package images

import (
	"bytes"
	"crypto/rand"
	"net/http"
	"syscall"
	"testing"

	"proxyfleet/internal/backends"
)

// TestAFullDiskIsNoCapacityAndKeepsNothing fills a real, tiny file system: once told of in
// advance, once only when the last byte does not fit.
func TestAFullDiskIsNoCapacityAndKeepsNothing(t *testing.T) {
	dir := t.TempDir()
	must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	large := make([]byte, 2<<20)
	_, _ = rand.Read(large)
	o := newOrigin(t, large)
	for name, serve := range map[string]func(http.ResponseWriter, *http.Request, []byte){
		"told of in advance": nil,
		"without a length": func(w http.ResponseWriter, _ *http.Request, image []byte) {
			_ = http.NewResponseController(w).Flush()
			_, _ = bytes.NewReader(image).WriteTo(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o.next(serve)
			_, err := newCache(t, Options{}).Fetch(t.Context(), dir, Source{Key: name, URL: o.URL}, nil)
			wantClass(t, err, backends.ErrNoCapacity)
			if n := left(t, dir); len(n) > 0 {
				t.Errorf("left: %v", n)
			}
		})
	}
}
