package pvefake

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// pki is the cluster's own authority, as pvecm makes one.
type pki struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	next int64
}

func newPKI() (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Proxmox Virtual Environment", Organization: []string{"PVE Cluster Manager CA"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &pki{cert: cert, key: key, next: 2, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

func (p *pki) issue(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	p.next++
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(p.next), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames: []string{name, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, p.cert, key.Public(), p.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// CAPEM is the certificate of the authority that signed the nodes' ones now.
func (c *Cluster) CAPEM() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pki.pem
}

// Fingerprint is the SHA-256 of the node's certificate, as Proxmox shows it:
// upper-case hexadecimal pairs with colons.
func (c *Cluster) Fingerprint(node string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := sha256.Sum256(c.nodes[node].endpoint.cert.Certificate[0])
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}

// RenewCertificate gives a node a new certificate of the same authority, for
// the handshakes from now on; connections that stand are cut.
func (c *Cluster) RenewCertificate(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renew(node)
}

// ReplaceCA gives the cluster a new authority and every node a certificate of
// it; CAPEM answers the new one.
func (c *Cluster) ReplaceCA() {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := newPKI()
	if err != nil {
		c.t.Errorf("pvefake: %v", err)
		return
	}
	c.pki = p
	for name := range c.nodes {
		c.renew(name)
	}
}

func (c *Cluster) renew(node string) {
	cert, err := c.pki.issue(node)
	if err != nil {
		c.t.Errorf("pvefake: %v", err)
		return
	}
	e := c.nodes[node].endpoint
	e.setCert(cert)
	e.cutAll()
}
