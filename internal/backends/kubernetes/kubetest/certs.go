package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// authority is a cluster's CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, path string) authority {
	t.Helper()
	a := authority{key: newKey(t), cert: &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubetest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}}
	raw, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(raw)
	must(t, err)
	writePEM(t, path, "CERTIFICATE", raw)
	return a
}

// issue writes a certificate and its key for a user or, with an address, a server.
func (a authority) issue(t testing.TB, path string, who pkix.Name, ips ...net.IP) {
	t.Helper()
	key := newKey(t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	usage := x509.ExtKeyUsageClientAuth
	if len(ips) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial, Subject: who, IPAddresses: ips, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{usage}}, a.cert, key.Public(), a.key)
	must(t, err)
	writePEM(t, path+".crt", "CERTIFICATE", raw)
	writeKey(t, path+".key", key)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func writeKey(t testing.TB, path string, key *ecdsa.PrivateKey) {
	t.Helper()
	raw, err := x509.MarshalECPrivateKey(key)
	must(t, err)
	writePEM(t, path, "EC PRIVATE KEY", raw)
}

func writePEM(t testing.TB, path, kind string, raw []byte) {
	t.Helper()
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
