package bus

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// authOptions are how we log in and whom we trust. The client library offers options for
// the same files, but those read them once first and fail where they are not there yet;
// these callbacks run at every connect only.
func (cfg ClientConfig) authOptions() ([]nats.Option, error) {
	var opts []nats.Option
	ways := 0
	if cfg.Credentials != "" {
		ways++
		opts = append(opts, credentials(cfg.Credentials))
	}
	if cfg.NKeySeed != "" {
		ways++
		o, err := nats.NkeyOptionFromSeed(cfg.NKeySeed)
		if err != nil {
			return nil, fmt.Errorf("nats.nkeySeed %s: %w", cfg.NKeySeed, err)
		}
		opts = append(opts, o)
	}
	if cfg.User != "" {
		ways++
		opts = append(opts, nats.UserInfoHandler(func() (string, string) {
			password, _ := os.ReadFile(cfg.PasswordFile) // unreadable: the server refuses, and we try again
			return cfg.User, strings.TrimRight(string(password), "\r\n")
		}))
	}
	if ways > 1 {
		return nil, errors.New("nats: only one of credentials, nkeySeed and user may be set")
	}
	if (cfg.Cert == "") != (cfg.Key == "") {
		return nil, errors.New("nats: cert and key belong together")
	}
	if cfg.CA != "" {
		opts = append(opts, secure(func(o *nats.Options) { o.RootCAsCB = rootCAs(cfg.CA) }))
	}
	if cfg.Cert != "" {
		opts = append(opts, secure(func(o *nats.Options) { o.TLSCertCB = certificate(cfg.Cert, cfg.Key) }))
	}
	return opts, nil
}

// credentials logs in with a .creds file: a user's JWT and nkey seed.
func credentials(file string) nats.Option {
	return func(o *nats.Options) error {
		o.UserJWT = func() (string, error) {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			return nkeys.ParseDecoratedJWT(text)
		}
		o.SignatureCB = func(nonce []byte) ([]byte, error) {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			key, err := nkeys.ParseDecoratedNKey(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			defer key.Wipe()
			return key.Sign(nonce)
		}
		return nil
	}
}

func secure(set func(*nats.Options)) nats.Option {
	return func(o *nats.Options) error {
		o.Secure = true
		if o.TLSConfig == nil {
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		set(o)
		return nil
	}
}

func rootCAs(file string) func() (*x509.CertPool, error) {
	return func() (*x509.CertPool, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no PEM certificate", file)
		}
		return pool, nil
	}
}

func certificate(cert, key string) func() (tls.Certificate, error) {
	return func() (tls.Certificate, error) { return tls.LoadX509KeyPair(cert, key) }
}
