// Package passwd keeps a proxy's password as a hash that Squid's helper and our own proxy
// check alike: SHA-512 crypt, which has no limit on length that matters here and is part of
// every crypt(3) in use. It imports a hashing library and internal/secret.
package passwd

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-crypt/crypt/algorithm/shacrypt"

	"proxyfleet/internal/secret"
)

// rounds is SHA-crypt's default, which stands for no parameter in the hash. A check takes
// some milliseconds; both users of it remember what they have checked.
const rounds = 5000

// saltLength is SHA-crypt's longest.
const saltLength = 16

// MaxPassword is the longest password, in bytes. A hash takes time with the length of what
// is hashed, and what clients present may be as long as their headers.
const MaxPassword = 255

// Hash hashes a password of at most MaxPassword bytes. The salt follows from uid and username, so that the same
// parameters give the same text: a salt need not be secret or random, only of its own.
func Hash(uid, username string, password secret.String) (string, error) {
	if len(password.Reveal()) > MaxPassword {
		return "", fmt.Errorf("passwd: the password is longer than %d bytes", MaxPassword)
	}
	h, err := shacrypt.New(shacrypt.WithSHA512(), shacrypt.WithIterations(rounds))
	if err != nil {
		return "", fmt.Errorf("passwd: %w", err)
	}
	digest, err := h.HashWithSalt(password.Reveal(), salt(uid, username))
	if err != nil {
		return "", fmt.Errorf("passwd: %w", err)
	}
	return digest.Encode(), nil
}

// Matches reports whether hash is of password. It takes some milliseconds, or none for what
// is longer than MaxPassword.
func Matches(hash string, password secret.String) bool {
	if len(password.Reveal()) > MaxPassword {
		return false
	}
	d, err := shacrypt.Decode(hash)
	if err != nil {
		return false
	}
	return d.Match(password.Reveal())
}

// salt writes a digest in crypt(3)'s alphabet.
func salt(uid, username string) []byte {
	sum := sha256.Sum256([]byte("proxyfleet\x00" + uid + "\x00" + username))
	text := base64.RawStdEncoding.EncodeToString(sum[:])
	return []byte(strings.ReplaceAll(text, "+", ".")[:saltLength])
}
