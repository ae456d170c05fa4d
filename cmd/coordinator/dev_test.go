package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"proxyfleet/internal/backends/local"
	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

// TestMain makes the test binary run a proxy, as the hidden command does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "local-proxy" {
		if err := local.RunChild(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestDevIsTheSameFleetAtTheNextStart(t *testing.T) {
	store := t.TempDir()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "host: {name: here}\nstateDir: %s\nbackend: {type: sim}\nprobe: {disabled: true}\nnats: {url: nats://192.0.2.1}\n", filepath.Join(store, "agent")), 0o600); err != nil {
		t.Fatal(err)
	}
	first := runDev(t, store, file, func(url string) bus.Record {
		publish(t, url, "crawl-1")
		return running(t, url, "crawl-1")
	})
	again := runDev(t, store, file, func(url string) bus.Record { return running(t, url, "crawl-1") })
	if again.UID != first.UID || again.Generation != first.Generation {
		t.Errorf("got %+v, want the proxy of before: %+v", again, first)
	}
}

// runDev runs the command while f works with its fleet.
func runDev(t *testing.T, store, file string, f func(url string) bus.Record) bus.Record {
	t.Helper()
	port := freePort(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- devCmd{Store: store, Port: port, Backend: "auto", AgentConfig: file, LogLevel: "warn"}.Run(ctx)
	}()
	r := f(fmt.Sprintf("nats://127.0.0.1:%d", port))
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("dev: %v", err)
		}
	case <-time.After(bustest.Deadline):
		t.Fatal("dev does not end")
	}
	return r
}

// freePort is one that was free a moment ago: dev must be told, or people could not find it.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func client(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

func publish(t *testing.T, url, name string) {
	t.Helper()
	nc := client(t, url)
	defer nc.Close()
	bustest.Eventually(t, "publish an intent", func() error {
		_, err := nc.Request("fleet.intent.proxy."+name, fmt.Appendf(nil, `{"name":%q,"spec":{"allowFrom":["10.0.0.0/8"]}}`, name), time.Second)
		return err
	})
}

func running(t *testing.T, url, name string) (rec bus.Record) {
	t.Helper()
	nc := client(t, url)
	defer nc.Close()
	bustest.Eventually(t, name+" runs", func() error {
		m, err := nc.Request("fleet.api.get", []byte(name), time.Second)
		if err != nil {
			return err
		}
		if rec, err = bus.Decode[bus.Record](m.Data); err != nil || rec.Phase != bus.PhaseRunning {
			return fmt.Errorf("got %s, %v", m.Data, err)
		}
		return nil
	})
	return rec
}

func TestDevSaysThatAPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = devCmd{Store: t.TempDir(), Port: l.Addr().(*net.TCPAddr).Port, Backend: "local", LogLevel: "error"}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("got %v", err)
	}
}

func TestRunSaysHowAFleetIsMade(t *testing.T) {
	srv := bustest.Start(t)
	file := filepath.Join(t.TempDir(), "coordinator.yaml")
	if err := os.WriteFile(file, []byte("nats: {url: \""+srv.URL()+"\"}\nlog: {level: error}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := runCmd{configPath{file}}.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "coordinator bootstrap --config "+file) {
		t.Errorf("got %v", err)
	}
	boot := bootstrapCmd{configPath: configPath{file}, Replicas: 1, MaxHosts: 10, MaxBytes: bustest.MaxBytes, Timeout: bustest.Deadline}
	if err := boot.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := (runCmd{configPath{file}}).Run(ctx); err != nil {
		t.Errorf("after the bootstrap: %v", err)
	}
}
