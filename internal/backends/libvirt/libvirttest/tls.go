package libvirttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// tlsInside is where a daemon listens in its own network namespace.
const tlsInside = "127.0.0.1:16514"

// StartTLS is Start for a daemon that listens for TLS too, at an address on loopback, with a
// certificate of ca for 127.0.0.1.
func StartTLS(t testing.TB, ca CA) (d Daemon, address string) {
	t.Helper()
	d = start(t, func(d Daemon) {
		cert, key := ca.Issue(t, "127.0.0.1")
		must(t, os.WriteFile(d.path("listen"), fmt.Appendf(nil,
			"listen_tls = 1\nlisten_addr = \"127.0.0.1\"\nkey_file = %q\ncert_file = %q\nca_file = %q\n", key, cert, ca.File), 0o600))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			outside, err := listener.Accept()
			if err != nil {
				return
			}
			inside, err := d.dialInside(tlsInside)
			if err != nil {
				_ = outside.Close()
				continue
			}
			go join(outside, inside)
			go join(inside, outside)
		}
	}()
	return d, listener.Addr().String()
}

// join copies until one end closes, and closes both then.
func join(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
}

// dialInside connects from within the daemon's network namespace.
func (d Daemon) dialInside(address string) (conn net.Conn, err error) {
	if err := d.Within(func() { conn, err = net.Dial("tcp", address) }); err != nil {
		return nil, err
	}
	return conn, err
}

// CA is a certificate authority of a test's own.
type CA struct {
	File string // its certificate
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes one.
func NewCA(t testing.TB) CA {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	must(t, err)
	ca := CA{File: filepath.Join(dir, "cacert.pem"), dir: dir, cert: cert, key: key}
	writePEM(t, ca.File, "CERTIFICATE", der)
	return ca
}

// Issue makes a certificate for a server and a client at that address, and its key.
func (ca CA) Issue(t testing.TB, ip string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	serial := time.Now().UnixNano()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: ip}, IPAddresses: []net.IP{net.ParseIP(ip)},
		NotBefore: ca.cert.NotBefore, NotAfter: ca.cert.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca.cert, key.Public(), ca.key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	certFile, keyFile = filepath.Join(ca.dir, fmt.Sprint(serial, ".pem")), filepath.Join(ca.dir, fmt.Sprint(serial, ".key"))
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", private)
	return certFile, keyFile
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
