package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"proxyfleet/internal/agent"
	"proxyfleet/internal/backends"
)

func TestChecksAreATableAndFailTheCommand(t *testing.T) {
	var out strings.Builder
	ok := backends.TargetHealth{Target: "socket", Code: backends.CheckOK, Details: map[string]string{"version": "12", "a": "b"}}
	if err := printChecks(&out, []backends.TargetHealth{ok}); err != nil {
		t.Errorf("all is well: %v", err)
	}
	bad := backends.TargetHealth{Target: "pool/default", Code: backends.CheckPoolNotActive, Message: "start it"}
	if err := printChecks(&out, []backends.TargetHealth{ok, bad}); !errors.Is(err, errChecks) {
		t.Errorf("got %v, want errChecks", err)
	}
	want := `TARGET  VERDICT  MESSAGE
socket  OK       a=b version=12
TARGET        VERDICT        MESSAGE
socket        OK             a=b version=12
pool/default  PoolNotActive  start it
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestCommandsReadTheirConfiguration(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	text := "host: {name: h}\nstateDir: " + dir + "\nbackend: {type: sim}\n"
	for path, content := range map[string]string{good: text, bad: text + "nope: 1\n"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string // in the error; empty: none
	}{
		{[]string{"config", "validate", "--config", good}, ""},
		{[]string{"config", "validate", "--config", bad}, "[4:1]"},
		{[]string{"config", "sample"}, ""},
		{[]string{"check", "--config", good}, ""},
		{[]string{"check", "--config", bad}, "[4:1]"},
		{[]string{"images", "list", "--config", good}, "no installation yet"},
		{[]string{"accept-streams", "--config", good, "x"}, "nothing to accept"},
		{[]string{"run", "--config", bad}, "[4:1]"},
		{[]string{"version"}, ""},
		{[]string{"local-proxy", "only-one-argument"}, "want a state directory and a uid"},
	} {
		t.Run(strings.Join(c.args[:min(2, len(c.args))], " "), func(t *testing.T) {
			var into cli
			k, err := kong.New(&into)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := k.Parse(c.args)
			if err != nil {
				t.Fatal(err)
			}
			parsed.BindTo(t.Context(), (*context.Context)(nil))
			err = parsed.Run()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestMetricsAndHealthAreServed(t *testing.T) {
	cfg, err := agent.Parse([]byte("host: {name: h}\nstateDir: " + t.TempDir() + "\nbackend: {type: sim}\n"))
	if err != nil {
		t.Fatal(err)
	}
	telemetry, err := newTelemetry(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = telemetry.close() }()
	a, err := agent.Open(cfg, agent.Options{Meter: telemetry.meter})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	log := &strings.Builder{}
	serve, interrupt, err := serveHTTP("127.0.0.1:0", telemetry.metrics, a, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- serve() }()
	_, address, _ := strings.Cut(strings.TrimSpace(log.String()), "address=")
	for path, want := range map[string]string{"/healthz": "ok\n", "/metrics": "go_goroutines"} {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s %.100s, want %q", path, resp.Status, body, want)
		}
	}
	interrupt(nil)
	if err := <-done; err != nil {
		t.Errorf("after the interrupt: %v", err)
	}
}
