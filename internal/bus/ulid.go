package bus

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// NewULID makes an identifier: a lower-case ULID of the present time and fresh entropy, 26
// characters, a valid DNS label and subject token.
func NewULID() string {
	return strings.ToLower(ulid.MustNew(ulid.Timestamp(time.Now()), rand.Reader).String())
}

// ValidULID reports whether s is one that [NewULID] could have made.
func ValidULID(s string) bool {
	if s != strings.ToLower(s) {
		return false
	}
	_, err := ulid.ParseStrict(strings.ToUpper(s))
	return err == nil
}
