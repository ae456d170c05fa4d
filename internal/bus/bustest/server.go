package bustest

import (
	"context"
	"log/slog"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/natsd"
)

// Deadline bounds every expectation. It is long because the machines that run tests are
// busy, and costs nothing when things work.
const Deadline = 20 * time.Second

// MaxBytes of each stream of a test's fleet: servers reserve it.
const MaxBytes = 64 << 20

// Server is an embedded server on a port of its own.
type Server struct {
	t   testing.TB
	cfg natsd.Config

	mu  sync.Mutex // guards srv
	srv *natsd.Server
	url string
}

// Start starts a server with JetStream in t.TempDir. It listens on a free port of the
// loopback, since clients that connect in-process do not survive a restart.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartWith(t, natsd.Config{})
}

// StartWith is Start with a configuration; what it leaves out is as with Start.
func StartWith(t testing.TB, cfg natsd.Config) *Server {
	t.Helper()
	if cfg.Port == 0 {
		cfg.Port = -1
	}
	if cfg.StoreDir == "" {
		cfg.StoreDir = t.TempDir()
	}
	if cfg.Log == nil {
		cfg.Log = Log(t)
	}
	s := &Server{t: t, cfg: cfg}
	s.start()
	u, err := url.Parse(s.srv.URL())
	if err != nil {
		t.Fatalf("URL of the server: %v", err)
	}
	if s.cfg.Port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatalf("port of the server: %v", err)
	}
	s.url = s.srv.URL()
	t.Cleanup(s.Stop)
	return s
}

// URL is where the server listens; it stays the same over restarts.
func (s *Server) URL() string { return s.url }

// StoreDir is the directory of its store.
func (s *Server) StoreDir() string { return s.cfg.StoreDir }

// SyncAlways tells whether the running server syncs every write.
func (s *Server) SyncAlways() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv.SyncAlways()
}

// Stop stops the server if it runs. Clients keep trying.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv != nil {
		s.srv.Close()
		s.srv = nil
	}
}

// Restart stops the server and starts it again with its store and port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.start()
}

func (s *Server) start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	srv, err := natsd.Start(s.cfg)
	if err != nil {
		s.t.Fatalf("start the NATS server: %v", err)
	}
	s.srv = srv
}

// Connect returns a connection with the project's own options, closed at the end.
func (s *Server) Connect(name string) (*nats.Conn, jetstream.JetStream) {
	s.t.Helper()
	cfg := bus.ClientConfig{URL: s.url}
	nc, err := bus.Connect(cfg, name, Log(s.t))
	if err != nil {
		s.t.Fatalf("connect: %v", err)
	}
	s.t.Cleanup(nc.Close)
	js, err := bus.JetStream(nc, cfg)
	if err != nil {
		s.t.Fatalf("JetStream: %v", err)
	}
	return nc, js
}

// Bootstrap makes an installation under the default names.
func (s *Server) Bootstrap() bus.Installation {
	s.t.Helper()
	_, js := s.Connect("bootstrap")
	inst, err := bus.Bootstrap(Context(s.t), js, bus.Names{}, bus.BootstrapOptions{MaxBytes: MaxBytes})
	if err != nil {
		s.t.Fatalf("bootstrap: %v", err)
	}
	return inst
}

// Open opens the installation on a connection of its own.
func (s *Server) Open(name string) *bus.Fleet {
	s.t.Helper()
	nc, js := s.Connect(name)
	f, err := bus.Open(Context(s.t), nc, js, bus.Names{}, "", Log(s.t))
	if err != nil {
		s.t.Fatalf("open the fleet: %v", err)
	}
	return f
}

// Fleet starts a server, bootstraps it and opens it.
func Fleet(t testing.TB) (*Server, *bus.Fleet) {
	t.Helper()
	s := Start(t)
	s.Bootstrap()
	return s, s.Open("coordinator")
}

// Lead opens a Leader of f.
func Lead(t testing.TB, f *bus.Fleet, holder string) *bus.Leader {
	t.Helper()
	l, err := f.Lead(Context(t), holder)
	if err != nil {
		t.Fatalf("lead as %s: %v", holder, err)
	}
	return l
}

// Host opens the link of a host on a connection of its own.
func (s *Server) Host(host string) *bus.HostLink {
	s.t.Helper()
	nc, js := s.Connect("agent-" + host)
	l := bus.OpenHost(nc, js, bus.Names{}, host, Log(s.t))
	s.t.Cleanup(l.Close)
	return l
}

// Context ends with the test, or after [Deadline].
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	t.Cleanup(cancel)
	return ctx
}

// Log writes to the test's log.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
