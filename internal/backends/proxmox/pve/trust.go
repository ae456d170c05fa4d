package pve

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
)

// pinError is a certificate whose fingerprint was not agreed.
type pinError struct{ got string }

func (e *pinError) Error() string {
	return "the server's certificate has the SHA-256 fingerprint " + e.got + ", which is not the configured one"
}

// dialTLS connects and verifies the server by what the trust files have at this moment.
func (c *Client) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	conf, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	conf.ServerName = host
	raw, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, conf)
	hand, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(hand); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return conn, nil
}

// tlsConfig is by CA, by fingerprints, or by the system's CAs where neither is configured.
func (c *Client) tlsConfig() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case c.caFile != nil:
		pem, _, err := c.caFile.read()
		if err != nil {
			return nil, &Credential{What: "CA file", Path: c.caFile.path, Cause: withoutPath(err)}
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &Credential{What: "CA file", Path: c.caFile.path, Cause: errors.New("it has no certificate in PEM")}
		}
	case c.pinFile != nil || len(c.pins) > 0:
		pins := c.pins
		if c.pinFile != nil {
			text, _, err := c.pinFile.read()
			if err != nil {
				return nil, &Credential{What: "fingerprint file", Path: c.pinFile.path, Cause: withoutPath(err)}
			}
			if pins, err = ParseFingerprints(string(text)); err != nil {
				return nil, &Credential{What: "fingerprint file", Path: c.pinFile.path, Cause: err}
			}
		}
		conf.InsecureSkipVerify = true // the fingerprint below is stricter than a chain
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			got := sha256.Sum256(s.PeerCertificates[0].Raw)
			if !slices.Contains(pins, got) {
				return &pinError{got: colons(got[:])}
			}
			return nil
		}
	}
	return conf, nil
}

// trustChanged drops idle connections that older trust files let in.
func (c *Client) trustChanged() {
	var changes int64
	for _, f := range []*file{c.caFile, c.pinFile} {
		if f != nil {
			_, n, _ := f.read()
			changes += n
		}
	}
	if c.trusted.Swap(changes) != changes {
		c.http.CloseIdleConnections()
	}
}

// ParseFingerprints reads SHA-256 fingerprints as PVE shows them: 32 bytes in hex, with or
// without colons, several separated by commas or white space.
func ParseFingerprints(text string) ([][sha256.Size]byte, error) {
	var out [][sha256.Size]byte
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' }) {
		raw, err := hex.DecodeString(strings.ReplaceAll(word, ":", ""))
		if err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("%q is not a SHA-256 fingerprint of 32 bytes in hex", word)
		}
		out = append(out, [sha256.Size]byte(raw))
	}
	if len(out) == 0 {
		return nil, errors.New("there is no fingerprint")
	}
	return out, nil
}

func colons(b []byte) string {
	parts := make([]string, len(b))
	for i, x := range b {
		parts[i] = fmt.Sprintf("%02X", x)
	}
	return strings.Join(parts, ":")
}

// withoutPath keeps the reason of a file error; who reports it names the path.
func withoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// isPath tells a file with fingerprints from fingerprints.
func isPath(s string) bool { return filepath.IsAbs(s) }
