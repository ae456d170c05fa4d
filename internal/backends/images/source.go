package images

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"net/url"
	"path/filepath"
	"strings"

	"proxyfleet/internal/backends"
)

// Source is where a base comes from. Exactly one of URL and File is set.
type Source struct {
	// Key is the name under which people configured it; a URL where an intent named one.
	Key  string
	URL  string // http or https
	File string // absolute path on this host
	// Digest of the bytes as they are fetched, "sha256:<hex>" or "sha512:<hex>". Without it
	// the first content pins the entry until its URL, file or format changes.
	Digest string
	Format string // "qcow2" or "raw"; empty is qcow2
}

const op = "image"

// Kind is "qcow2" or "raw".
func (s Source) Kind() string {
	if s.Format == "" {
		return "qcow2"
	}
	return s.Format
}

// entry identifies the configured source, for locks, pins and partial files. The digest is
// left out on purpose: with a new one the same bytes may still be worth resuming.
func (s Source) entry() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{s.Key, s.URL, s.File, s.Kind()}, "\x00")))
	return hex.EncodeToString(sum[:12])
}

// String names the source for people. A URL is shown without user, query and fragment,
// where secrets live.
func (s Source) String() string {
	if s.File != "" {
		return s.File
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return "an image URL that cannot be parsed"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

func (s Source) validate() error {
	if (s.URL == "") == (s.File == "") {
		return backends.Errorf(backends.ErrPermanent, op, "image %q needs a url or a file, and not both", s.Key)
	}
	if s.File != "" && !filepath.IsAbs(s.File) {
		return backends.Errorf(backends.ErrPermanent, op, "image file %q is not an absolute path", s.File)
	}
	if s.URL != "" {
		u, err := url.Parse(s.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return backends.Errorf(backends.ErrPermanent, op, "%s is not an http or https URL", s)
		}
	}
	if f := s.Kind(); f != "qcow2" && f != "raw" {
		return backends.Errorf(backends.ErrPermanent, op, "image format %q is neither qcow2 nor raw", s.Format)
	}
	if s.Digest != "" && !ValidDigest(s.Digest) {
		return backends.Errorf(backends.ErrPermanent, op, "image digest %q is neither sha256:<64 hex digits> nor sha512:<128 hex digits>", s.Digest)
	}
	return nil
}

// ValidDigest reports whether d is "sha256:" and 64, or "sha512:" and 128, lower-case hex
// digits.
func ValidDigest(d string) bool {
	name, sum, _ := strings.Cut(d, ":")
	raw, err := hex.DecodeString(sum)
	return err == nil && sum == strings.ToLower(sum) &&
		(name == "sha256" && len(raw) == sha256.Size || name == "sha512" && len(raw) == sha512.Size)
}

// newHash returns the hash that d was made with; sha256 for an empty d.
func newHash(d string) (name string, h hash.Hash) {
	if strings.HasPrefix(d, "sha512:") {
		return "sha512", sha512.New()
	}
	return "sha256", sha256.New()
}

// short is the part of a digest that stands in file names: 96 bits of it.
func short(digest string) string {
	_, sum, _ := strings.Cut(digest, ":")
	return sum[:24]
}
