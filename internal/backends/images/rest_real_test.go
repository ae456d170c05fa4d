//go:build real

package images

import (
	"os"
	"testing"
	"time"

	"proxyfleet/internal/backends"
)

func TestABrokenDownloadIsKeptAsLongAsItIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	o := newOrigin(t, qcow2(t, "a"))
	s := Source{Key: "k", URL: o.URL}
	try := func(n int) Rest {
		t.Helper()
		o.next(cutOff(n))
		_, err := newCache(t, Options{}).Fetch(t.Context(), dir, s, nil)
		wantClass(t, err, backends.ErrTransient)
		rests, err := Rests(dir)
		if err != nil || len(rests) != 1 || rests[0].Busy || rests[0].Source != s.String() {
			t.Fatalf("found %+v, %v", rests, err)
		}
		return rests[0]
	}
	r := try(350_000)
	old := time.Now().Add(-2 * time.Hour)
	for _, f := range r.files {
		must(t, os.Chtimes(f, old, old))
	}
	o.Server.Config.SetKeepAlivesEnabled(false)
	o.CloseClientConnections()
	o.Listener.Close() // a try that does not even reach the server
	_, err := newCache(t, Options{}).Fetch(t.Context(), dir, s, nil)
	wantClass(t, err, backends.ErrTransient)
	if rests, err := Rests(dir); err != nil || len(rests) != 1 || rests[0].Idle(time.Now()) {
		t.Errorf("it was asked for just now: %+v, %v", rests, err)
	}
	gone, err := r.Remove(time.Now().Add(2 * time.Hour))
	if n := left(t, dir); err != nil || !gone || len(n) > 0 {
		t.Errorf("removed %v, %v; left %v", gone, err, n)
	}
}
