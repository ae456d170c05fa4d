package natsd_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
	"proxyfleet/internal/bus/natsd"
)

func TestAServerWithoutAPortIsReachedInProcessOnly(t *testing.T) {
	srv, err := natsd.Start(natsd.Config{StoreDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	if srv.URL() != "" {
		t.Errorf("it listens on %s", srv.URL())
	}
	nc, err := bus.Connect(bus.ClientConfig{}, "test", bustest.Log(t), srv.InProcess())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := bus.JetStream(nc, bus.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Bootstrap(bustest.Context(t), js, bus.Names{}, bus.BootstrapOptions{MaxBytes: bustest.MaxBytes}); err != nil {
		t.Error(err)
	}
}

func TestAServerListensOnTheLoopbackByDefaultAndOnTheAskedPort(t *testing.T) {
	srv, err := natsd.Start(natsd.Config{StoreDir: t.TempDir(), Port: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	host, port, err := net.SplitHostPort(strings.TrimPrefix(srv.URL(), "nats://"))
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("URL %s", srv.URL())
	}
}

func TestAPortThatIsTakenIsSaid(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	start := time.Now()
	_, err = natsd.Start(natsd.Config{StoreDir: t.TempDir(), Port: port})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("got %v, want an error that says that the port is in use", err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v to say so", took)
	}
}

func TestAServerKeepsItsStoreOverARestart(t *testing.T) {
	s, f := bustest.Fleet(t)
	_, js := s.Connect("test")
	if _, err := js.Publish(bustest.Context(t), f.Names().IntentProxy("crawl-1"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	url := s.URL()
	s.Restart()
	if s.URL() != url {
		t.Errorf("it listens on %s after %s", s.URL(), url)
	}
	again := s.Open("again")
	if again.Installation() != f.Installation() {
		t.Errorf("installation %+v after %+v", again.Installation(), f.Installation())
	}
	bustest.Follow(t, again, f.Names().Intents(), "").Next()
}

// Intents carry passwords, so the store must not be readable by others.
func TestTheStoreIsForItsOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	srv, err := natsd.Start(natsd.Config{StoreDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	srv.Close()
	info, err := os.Stat(dir)
	if err != nil || info.Mode()&fs.ModePerm != 0o700 {
		t.Errorf("mode %v, %v; want 0700", info.Mode(), err)
	}
	if _, err := natsd.Start(natsd.Config{}); err == nil {
		t.Error("a server without a store directory started")
	}
}

func TestTheServersLogGoesToSlog(t *testing.T) {
	var out bytes.Buffer
	srv, err := natsd.Start(natsd.Config{
		StoreDir: t.TempDir(),
		Log:      slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	srv.Close() // nothing writes to out any more
	if !strings.Contains(out.String(), "Starting JetStream") {
		t.Errorf("log:\n%s", out.String())
	}
	if strings.Contains(out.String(), "level=INFO") {
		t.Errorf("the server's notices are not for everyday logs:\n%s", out.String())
	}
}

func TestSyncAlwaysReachesTheServer(t *testing.T) {
	s := bustest.StartWith(t, natsd.Config{SyncAlways: true})
	nc, _ := s.Connect("test")
	bustest.Eventually(t, "connect", func() error {
		if !nc.IsConnected() {
			return nats.ErrDisconnected
		}
		return nil
	})
	if !s.SyncAlways() {
		t.Error("writes are not synced")
	}
}
