package bustest

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// Wire is a TCP relay between clients and a server that can be cut or muted, for tests of
// what happens when the network fails and not the server.
type Wire struct {
	listener net.Listener
	server   string

	mu    sync.Mutex // guards the fields that follow
	conns map[net.Conn]struct{}
	cut   bool
	muted bool
}

// Wire starts a relay to s.
func (s *Server) Wire() *Wire { return NewWire(s.t, strings.TrimPrefix(s.url, "nats://")) }

// NewWire starts a relay to an address.
func NewWire(t testing.TB, address string) *Wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("relay: %v", err)
	}
	w := &Wire{listener: l, server: address, conns: map[net.Conn]struct{}{}}
	go w.accept()
	t.Cleanup(func() {
		l.Close()
		w.Cut()
	})
	return w
}

// Address is where the relay listens.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Connect is [Server.Connect] through the relay. More options come last.
func (w *Wire) Connect(t testing.TB, name string, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	cfg := bus.ClientConfig{URL: "nats://" + w.listener.Addr().String()}
	nc, err := bus.Connect(cfg, name, Log(t), opts...)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := bus.JetStream(nc, cfg)
	if err != nil {
		t.Fatalf("JetStream: %v", err)
	}
	return nc, js
}

// Cut ends every connection and lets no new one through.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for c := range w.conns {
		c.Close()
	}
}

// Mute drops what the server says from now on, while what clients say still arrives: their
// writes are stored, and the answers lost.
func (w *Wire) Mute() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.muted = true
}

// Heal ends Cut and Mute. Connections that were muted are closed, since their streams of
// bytes have a hole.
func (w *Wire) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.muted {
		for c := range w.conns {
			c.Close()
		}
	}
	w.cut, w.muted = false, false
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.server)
		if err != nil || !w.add(client, server) {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		go w.relay(server, client, false)
		go w.relay(client, server, true)
	}
}

func (w *Wire) add(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	for _, c := range conns {
		w.conns[c] = struct{}{}
	}
	return true
}

// relay copies until either side ends; answers are what the server says.
func (w *Wire) relay(to, from net.Conn, answers bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		drop := answers && w.muted
		w.mu.Unlock()
		if n > 0 && !drop {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = io.ErrClosedPipe
			}
		}
		if err != nil {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range []net.Conn{to, from} {
		delete(w.conns, c)
		c.Close()
	}
}
