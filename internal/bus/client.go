package bus

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Times of a connection. A dead peer is noticed after two unanswered pings; a fleet that
// comes back at once is spread by the jitter.
const (
	pingInterval    = 15 * time.Second
	reconnectWait   = 250 * time.Millisecond
	reconnectJitter = time.Second
	apiTimeout      = 5 * time.Second
)

// ClientConfig says how to reach NATS. Files are read at every connect, so that they can
// be rotated. The zero value connects to nats.DefaultURL.
type ClientConfig struct {
	URL          string `yaml:"url" json:"url"`
	Credentials  string `yaml:"credentials" json:"credentials"` // .creds file
	NKeySeed     string `yaml:"nkeySeed" json:"nkeySeed"`       // file with an nkey seed
	User         string `yaml:"user" json:"user"`               // with PasswordFile
	PasswordFile string `yaml:"passwordFile" json:"passwordFile"`
	CA           string `yaml:"ca" json:"ca"`     // PEM file
	Cert         string `yaml:"cert" json:"cert"` // PEM file, with Key
	Key          string `yaml:"key" json:"key"`
	APIPrefix    string `yaml:"apiPrefix" json:"apiPrefix"` // of JetStream, where it is imported from another account
}

// Connect returns at once, with a connection that keeps trying for ever: unlimited and
// jittered reconnects, retried first connect, pings every 15 s, authentication errors
// are retried, inbox prefix of its own ("_INBOX_<name>"). name shows in the server's
// connection list. extra options come last (tests use in-process connections).
//
// A configuration that can never work is an error: two ways to log in, a certificate
// without its key, a URL that is none. A file that is missing or wrong now is not: it may
// be put right while we try. Only the nkey seed must be there at the start.
func Connect(cfg ClientConfig, name string, log *slog.Logger, extra ...nats.Option) (*nats.Conn, error) {
	url := cfg.URL
	if url == "" {
		url = nats.DefaultURL
	}
	opts := []nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomInboxPrefix(InboxPrefix(name)),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected from NATS; trying again until it is back", "err", err)
			}
		}),
		nats.ConnectHandler(func(nc *nats.Conn) { log.Info("connected to NATS", "server", nc.ConnectedServerName()) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info("reconnected to NATS", "server", nc.ConnectedServerName()) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if sub != nil {
				log.Warn("NATS reports an error", "subject", sub.Subject, "err", err)
				return
			}
			log.Warn("NATS reports an error", "err", err)
		}),
	}
	auth, err := cfg.authOptions()
	if err != nil {
		return nil, err
	}
	opts = append(opts, auth...)
	opts = append(opts, extra...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", url, err)
	}
	return nc, nil
}

// InboxPrefix is the prefix of the inboxes of a client of that name, which its grants must
// allow it to subscribe to. Characters that a subject cannot have become "_".
func InboxPrefix(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
	return "_INBOX_" + clean
}

// JetStream returns the JetStream context for cfg (its API prefix) with the options that
// the project needs.
func JetStream(nc *nats.Conn, cfg ClientConfig) (jetstream.JetStream, error) {
	opts := []jetstream.JetStreamOpt{
		jetstream.WithDefaultTimeout(apiTimeout),
		jetstream.WithPublishAsyncTimeout(2 * apiTimeout),
	}
	if cfg.APIPrefix != "" {
		return jetstream.NewWithAPIPrefix(nc, cfg.APIPrefix, opts...)
	}
	return jetstream.New(nc, opts...)
}
