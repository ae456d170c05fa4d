package images

import (
	"strings"
	"testing"

	"proxyfleet/internal/backends"
)

func TestSourcesThatCannotBeUsedAreRefused(t *testing.T) {
	for _, s := range []Source{
		{}, {URL: "http://x/y", File: "/z"}, {File: "relative"}, {URL: "ftp://x/y"}, {URL: "file:///etc/passwd"}, {URL: "http://"},
		{URL: "http://x/y", Format: "vmdk"}, {URL: "http://x/y", Digest: "md5:00"}, {URL: "http://x/y", Digest: "sha256:" + strings.Repeat("A", 64)},
		{URL: "http://x/y", Digest: "sha256:../../../../etc/passwd"},
	} {
		_, err := New(Options{}).Fetch(t.Context(), t.TempDir(), s, nil)
		if backends.Class(err) != backends.ErrPermanent {
			t.Errorf("%+v: got %v, want Permanent", s, err)
		}
	}
}

func TestASourceIsNamedWithoutItsSecrets(t *testing.T) {
	for source, want := range map[Source]string{
		{URL: "https://user:hunter2@example.org/debian.qcow2?token=hunter3#hunter4"}: "https://example.org/debian.qcow2",
		{URL: "http://[::1"}:   "an image URL that cannot be parsed",
		{File: "/srv/i.qcow2"}: "/srv/i.qcow2",
	} {
		if got := source.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestAnEntryIsAnotherOnceItsSourceOrFormatChanges(t *testing.T) {
	s := Source{Key: "debian", URL: "http://x/a"}
	pinned := s
	pinned.Digest = "sha256:" + strings.Repeat("0", 64)
	if s.entry() != pinned.entry() {
		t.Error("a digest makes another entry: its partial download would be lost")
	}
	for _, other := range []Source{{Key: "debian", URL: "http://x/b"}, {Key: "debian-2", URL: "http://x/a"}, {Key: "debian", URL: "http://x/a", Format: "raw"}, {Key: "debian", File: "http://x/a"}} {
		if s.entry() == other.entry() {
			t.Errorf("%+v shares its pin with %+v", other, s)
		}
	}
}
