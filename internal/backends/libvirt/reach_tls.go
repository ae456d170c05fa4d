package libvirt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"proxyfleet/internal/backends"
)

// TLS is how a qemu+tls:// daemon is reached. All files are read again for each connection.
// The defaults are where libvirt's own clients look.
type TLS struct {
	CA   string `yaml:"ca"`   // of the daemon's certificate. Default /etc/pki/CA/cacert.pem
	Cert string `yaml:"cert"` // the agent's. Default /etc/pki/libvirt/clientcert.pem
	Key  string `yaml:"key"`  // Default /etc/pki/libvirt/private/clientkey.pem
}

func (t TLS) withDefaults() TLS {
	if t.CA == "" {
		t.CA = "/etc/pki/CA/cacert.pem"
	}
	if t.Cert == "" {
		t.Cert = "/etc/pki/libvirt/clientcert.pem"
	}
	if t.Key == "" {
		t.Key = "/etc/pki/libvirt/private/clientkey.pem"
	}
	return t
}

// tlsReach has a TLS connection of its own for each operation.
type tlsReach struct {
	at    endpoint
	files TLS
}

func (r tlsReach) dial(ctx context.Context) (net.Conn, error) {
	config, err := r.files.load(r.at.host)
	if err != nil {
		return nil, unreachable(ctx, backends.CheckCredentialsUnavailable, err, "the files for TLS to %s cannot be used; correct tls", r.at.address)
	}
	tcp := remoteDialer()
	raw, err := tcp.DialContext(ctx, "tcp", r.at.address)
	if err != nil {
		return nil, unreachable(ctx, backends.CheckUnreachable, err, "libvirtd on %s cannot be reached; guests that run go on running", r.at.address)
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, r.refused(ctx, err)
	}
	if err := r.welcome(ctx, conn); err != nil {
		_ = raw.Close()
		return nil, r.refused(ctx, err)
	}
	return conn, nil
}

// welcome waits for the byte by which a daemon tells that it takes the agent's certificate;
// one that does not just hangs up. Source: virNetServerClientSendMessage's caller in
// src/rpc/virnetserverclient.c ("virNetTLSSession… confirm byte").
func (r tlsReach) welcome(ctx context.Context, conn net.Conn) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var b [1]byte
	if _, err := conn.Read(b[:]); err != nil {
		return &notWelcome{err}
	}
	if b[0] != 1 {
		return &notWelcome{fmt.Errorf("it answered %d", b[0])}
	}
	return nil
}

// notWelcome says that the daemon does not take the agent's certificate.
type notWelcome struct{ cause error }

func (n *notWelcome) Error() string { return n.cause.Error() }
func (n *notWelcome) Unwrap() error { return n.cause }

func (r tlsReach) refused(ctx context.Context, err error) error {
	var op *net.OpError
	switch {
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return unreachable(ctx, backends.CheckCertificateInvalid, err, "the certificate of libvirtd on %s is not to be trusted; correct it, or tls.ca", r.at.address)
	case errors.As(err, new(*notWelcome)), errors.As(err, &op) && op.Op == "remote error":
		return unreachable(ctx, backends.CheckUnauthorized, err,
			"libvirtd on %s does not take the agent's certificate; its CA must have signed tls.cert, and tls_allowed_dn_list name it", r.at.address)
	}
	return unreachable(ctx, backends.CheckUnreachable, err, "libvirtd on %s cannot be reached by TLS; guests that run go on running", r.at.address)
}

func (r tlsReach) fresh(ctx context.Context) (net.Conn, error) { return r.dial(ctx) }
func (r tlsReach) close()                                      {}

// load reads the files.
func (t TLS) load(host string) (*tls.Config, error) {
	ca, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", t.CA)
	}
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: host, MinVersion: tls.VersionTLS12}, nil
}

// remoteDialer notices an end that is gone without a word within a minute.
func remoteDialer() *net.Dialer {
	return &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepaliveEvery, Interval: keepaliveEvery, Count: 3}}
}
