// Package natsd runs a nats-server with JetStream inside another program: `coordinator dev`
// and tests. It is apart from package bus, so that agents do not carry a server. Start blocks
// until clients can connect, Close until the store is closed.
package natsd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// readyTimeout bounds the start of the embedded server, recovery of its store included.
const readyTimeout = 10 * time.Second

// pingInterval is how often the server asks whether a client is still there.
const pingInterval = 15 * time.Second

// Config is for the embedded server.
type Config struct {
	Host       string // default 127.0.0.1
	Port       int    // 0: in-process only; -1: any free port
	StoreDir   string // JetStream on disk; required
	SyncAlways bool   // fsync every write: guarantees hold through a power cut
	Log        *slog.Logger
}

// Server is an embedded nats-server with JetStream, for `coordinator dev` and tests. It
// has no authentication: whoever reaches its port may do everything.
type Server struct {
	srv *natsserver.Server
}

// Start starts an embedded server and waits until it is ready (10 s at most).
func Start(cfg Config) (*Server, error) {
	if cfg.StoreDir == "" {
		return nil, errors.New("embedded NATS server: no store directory")
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// nats-server puts a store without a directory of its own under the system's temporary
	// directory; making it here also gives it a mode that keeps passwords in intents private.
	if err := os.MkdirAll(cfg.StoreDir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	opts := &natsserver.Options{
		ServerName:   "proxyfleet-embedded",
		Host:         "127.0.0.1",
		Port:         cfg.Port,
		DontListen:   cfg.Port == 0,
		JetStream:    true,
		StoreDir:     cfg.StoreDir,
		SyncAlways:   cfg.SyncAlways,
		NoSigs:       true,
		NoLog:        true, // it would write to stderr; SetLoggerV2 below takes over
		MaxPayload:   1 << 20,
		PingInterval: pingInterval,
	}
	if cfg.Host != "" {
		opts.Host = cfg.Host
	}
	srv, err := natsserver.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	fatal := make(chan string, 1)
	srv.SetLoggerV2(serverLog{log, fatal}, false, false, false)
	srv.Start()
	if err := waitReady(srv, fatal); err != nil {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, fmt.Errorf("embedded NATS server: %w", err)
	}
	return &Server{srv: srv}, nil
}

// waitReady waits until clients can connect. What is fatal to a server is only logged by
// it: the program that it usually is would end there.
func waitReady(srv *natsserver.Server, fatal <-chan string) error {
	for deadline := time.Now().Add(readyTimeout); ; {
		if srv.ReadyForConnections(50 * time.Millisecond) {
			return nil
		}
		select {
		case text := <-fatal:
			return errors.New(text)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within %v; its log says more", readyTimeout)
		}
	}
}

// URL is where clients reach the server; empty when it is in-process only.
func (s *Server) URL() string {
	if s.srv.Addr() == nil {
		return ""
	}
	return s.srv.ClientURL()
}

// InProcess is the client option that connects without a socket.
func (s *Server) InProcess() nats.Option { return nats.InProcessServer(s.srv) }

// SyncAlways tells whether the server syncs every write before it acks it.
func (s *Server) SyncAlways() bool {
	return s.srv.JetStreamConfig() != nil && s.srv.JetStreamConfig().SyncAlways
}

// Close stops the server and waits until its store is closed.
func (s *Server) Close() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// serverLog sends the server's log to slog. Its notices are our debug: a start alone
// writes a page of them.
type serverLog struct {
	log   *slog.Logger
	fatal chan<- string // takes the first one
}

func (l serverLog) Noticef(f string, v ...any) { l.log.Debug(fmt.Sprintf(f, v...)) }
func (l serverLog) Warnf(f string, v ...any)   { l.log.Warn(fmt.Sprintf(f, v...)) }
func (l serverLog) Errorf(f string, v ...any)  { l.log.Error(fmt.Sprintf(f, v...)) }

func (l serverLog) Fatalf(f string, v ...any) {
	l.Errorf(f, v...)
	select {
	case l.fatal <- fmt.Sprintf(f, v...):
	default:
	}
}

func (l serverLog) Debugf(string, ...any) {}
func (l serverLog) Tracef(string, ...any) {}
