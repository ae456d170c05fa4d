package squid

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/secret"
)

// rounds is SHA-crypt's default, which stands for no parameter in the hash: a check takes
// some milliseconds of a helper, and Squid remembers it for ten minutes.
const rounds = 5000

// saltLength is SHA-crypt's longest.
const saltLength = 16

// passwordLine is one line of the password file: a username and a SHA-512 crypt hash, which
// basic_ncsa_auth checks with the system's crypt(3) at any length of password. The helper
// takes a line that begins with "#" or a space for a comment; such names are refused by
// [backends.Access.Validate].
func passwordLine(username string, password secret.String, uid string) ([]byte, error) {
	h, err := shacrypt.New(shacrypt.WithSHA512(), shacrypt.WithIterations(rounds))
	if err != nil {
		return nil, backends.Wrap(backends.ErrPermanent, "hash password", err, "SHA-512 crypt")
	}
	digest, err := h.HashWithSalt(password.Reveal(), salt(uid, username))
	if err != nil {
		return nil, backends.Wrap(backends.ErrPermanent, "hash password", err, "SHA-512 crypt")
	}
	return []byte(username + ":" + digest.Encode() + "\n"), nil
}

// salt need not be secret or random, only of its own for each uid and name. Its alphabet is
// crypt(3)'s.
func salt(uid, username string) []byte {
	sum := sha256.Sum256([]byte("proxyfleet\x00" + uid + "\x00" + username))
	text := base64.RawStdEncoding.EncodeToString(sum[:])
	return []byte(strings.ReplaceAll(text, "+", ".")[:saltLength])
}
