//go:build real

package images

import (
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
)

func TestAnImageIsFetchedOnceAndFoundByEverybodyAfterwards(t *testing.T) {
	image, dir := qcow2(t, "a"), t.TempDir()
	o := newOrigin(t, image)
	s := Source{Key: "debian", URL: o.URL + "/debian.qcow2?token=verysecret", Digest: sha(image)}
	var percents []int
	first, err := newCache(t, Options{}).Fetch(t.Context(), dir, s, func(step string, p int) {
		if step == "downloading image" {
			percents = append(percents, p)
		}
	})
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
