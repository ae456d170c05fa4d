package local

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"
	"sync"

	"proxyfleet/internal/backends/passwd"
	"proxyfleet/internal/secret"
)

// checker checks credentials. A hash takes milliseconds, so it remembers, under a key of its
// own, what it found right.
type checker struct {
	username, hash string
	key            [32]byte
	// one bounds how much of the processor wrong passwords can take.
	one sync.Mutex

	mu    sync.RWMutex // guards right
	right []byte
}

func newChecker(username, hash string) *checker {
	c := &checker{username: username, hash: hash}
	_, _ = rand.Read(c.key[:]) // never fails
	return c
}

// allows reports whether a Proxy-Authorization header has the right credentials (RFC 7617).
func (c *checker) allows(header string) bool {
	scheme, text, _ := strings.Cut(header, " ")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || !strings.EqualFold(scheme, "Basic") {
		return false
	}
	username, password, ok := strings.Cut(string(raw), ":")
	if !ok || subtle.ConstantTimeCompare([]byte(username), []byte(c.username)) != 1 {
		return false
	}
	mac := hmac.New(sha256.New, c.key[:])
	mac.Write([]byte(password))
	sum := mac.Sum(nil)
	if c.known(sum) {
		return true
	}
	c.one.Lock()
	defer c.one.Unlock()
	if c.known(sum) {
		return true
	}
	if !passwd.Matches(c.hash, secret.String(password)) {
		return false
	}
	c.mu.Lock()
	c.right = sum
	c.mu.Unlock()
	return true
}

func (c *checker) known(sum []byte) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.right != nil && hmac.Equal(c.right, sum)
}
