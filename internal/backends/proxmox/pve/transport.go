package pve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// Trouble is why no answer came.
type Trouble string

const (
	Unreachable Trouble = "Unreachable" // no connection
	Untrusted   Trouble = "Untrusted"   // the server's certificate is not the one that was agreed
	Slow        Trouble = "Slow"        // no answer in time
	Cut         Trouble = "Cut"         // the connection ended before the answer did
)

// NoAnswer is the outcome of a request that no endpoint answered.
type NoAnswer struct {
	Method, Path string
	Trouble      Trouble
	// Sent says that the request may have been carried out.
	Sent  bool
	Cause error
}

func (e *NoAnswer) Error() string {
	s := fmt.Sprintf("%s %s: %s", e.Method, e.Path, strings.ToLower(string(e.Trouble)))
	if e.Sent && e.Method != "GET" {
		s += ", and it is not known whether it was carried out"
	}
	return s + ": " + e.Cause.Error()
}

// Unwrap makes the cause match.
func (e *NoAnswer) Unwrap() error { return e.Cause }

// Credential says that the token, the CA or the fingerprint cannot be read or is malformed.
// It never has what the file has.
type Credential struct {
	What  string // "token file", "CA file", "fingerprint file"
	Path  string
	Cause error
}

func (e *Credential) Error() string { return fmt.Sprintf("%s %s: %v", e.What, e.Path, e.Cause) }

// Unwrap makes the cause match.
func (e *Credential) Unwrap() error { return e.Cause }

// trouble names what the transport says.
func trouble(err error) Trouble {
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var pin *pinError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &verify), errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid),
		errors.As(err, &pin), errors.As(err, &record):
		return Untrusted
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return Unreachable
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return Unreachable
	}
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return Slow
	}
	return Cut
}

// endpoints are the addresses of one cluster. The one that answered last comes first.
type endpoints struct {
	urls []string // without a slash at the end

	mu      sync.Mutex // guards current
	current int
}

// order returns the indexes to try.
func (e *endpoints) order() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]int, 0, len(e.urls))
	for i := range e.urls {
		out = append(out, (e.current+i)%len(e.urls))
	}
	return out
}

// answered makes i the first to be asked.
func (e *endpoints) answered(i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current = i
}
