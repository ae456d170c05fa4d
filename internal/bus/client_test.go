package bus_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

func connected(t *testing.T, nc *nats.Conn) {
	t.Helper()
	bustest.Eventually(t, "connect", func() error {
		if !nc.IsConnected() {
			return errors.New(nc.Status().String())
		}
		return nil
	})
}

func TestConnectDoesNotWaitForAServerAndFindsItLater(t *testing.T) {
	s := bustest.Start(t)
	s.Stop()
	start := time.Now()
	nc, _ := s.Connect("early")
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("connect took %v", took)
	}
	s.Restart()
	connected(t, nc)
}

func TestConnectionsHaveTheOptionsThatAnAgentNeeds(t *testing.T) {
	s := bustest.Start(t)
	nc, _ := s.Connect("agent-h1.example")
	o := nc.Opts
	if o.MaxReconnect != -1 || !o.RetryOnFailedConnect || !o.IgnoreAuthErrorAbort {
		t.Errorf("it gives up: %d, %v, %v", o.MaxReconnect, o.RetryOnFailedConnect, o.IgnoreAuthErrorAbort)
	}
	if o.PingInterval < 10*time.Second || o.PingInterval > 20*time.Second || o.ReconnectJitter == 0 {
		t.Errorf("pings every %v, jitter %v", o.PingInterval, o.ReconnectJitter)
	}
	if o.Name != "agent-h1.example" || !strings.HasPrefix(nc.NewInbox(), "_INBOX_agent-h1_example.") {
		t.Errorf("name %q, inbox %s", o.Name, nc.NewInbox())
	}
}

// A password that is wrong now may be put right without a restart of the client.
func TestAWrongPasswordIsTriedAgainWithTheFileAsItIsThen(t *testing.T) {
	srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
		Users: []*natsserver.User{{Username: "h1", Password: "right"}}})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(bustest.Deadline) {
		t.Fatal("the server is not ready")
	}
	file := filepath.Join(t.TempDir(), "password")
	for _, before := range []string{"wrong\n", ""} { // empty: the file is not there
		os.Remove(file)
		if before != "" {
			write(t, file, before)
		}
		nc, err := bus.Connect(bus.ClientConfig{URL: srv.ClientURL(), User: "h1", PasswordFile: file}, "h1", bustest.Log(t))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		time.Sleep(100 * time.Millisecond)
		if nc.IsConnected() {
			t.Error("connected without the password")
		}
		write(t, file, "right\n")
		connected(t, nc)
	}
}

// An operator mode server: the account's JWT is preloaded, users log in with .creds files.
func credsServer(t *testing.T) (url, creds string) {
	t.Helper()
	key := func(k nkeys.KeyPair, err error) (nkeys.KeyPair, string) {
		pub, _ := k.PublicKey()
		return k, pub
	}
	operator, operatorID := key(nkeys.CreateOperator())
	account, accountID := key(nkeys.CreateAccount())
	user, userID := key(nkeys.CreateUser())
	accountJWT, err := jwt.NewAccountClaims(accountID).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	userJWT, err := jwt.NewUserClaims(userID).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	resolver := &natsserver.MemAccResolver{}
	if err := resolver.Store(accountID, accountJWT); err != nil {
		t.Fatal(err)
	}
	srv, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true,
		TrustedKeys: []string{operatorID}, AccountResolver: resolver})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(bustest.Deadline) {
		t.Fatal("the server is not ready")
	}
	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(userJWT, seed)
	if err != nil {
		t.Fatal(err)
	}
	return srv.ClientURL(), string(text)
}

func TestACredentialsFileThatComesLaterIsUsed(t *testing.T) {
	url, creds := credsServer(t)
	file := filepath.Join(t.TempDir(), "host.creds")
	nc, err := bus.Connect(bus.ClientConfig{URL: url, Credentials: file}, "h1", bustest.Log(t))
	if err != nil {
		t.Fatalf("a missing credentials file ends the client: %v", err)
	}
	defer nc.Close()
	time.Sleep(100 * time.Millisecond)
	if nc.IsConnected() {
		t.Error("connected without credentials")
	}
	write(t, file, creds)
	connected(t, nc)
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	for what, cfg := range map[string]bus.ClientConfig{
		"two ways to log in":        {Credentials: "a", User: "b"},
		"a certificate without key": {Cert: "a"},
		"a key without certificate": {Key: "a"},
		"an nkey seed that is none": {NKeySeed: write(t, filepath.Join(t.TempDir(), "seed"), "not a seed")},
		"a URL that is none":        {URL: "nats://[::"},
	} {
		if nc, err := bus.Connect(cfg, "test", bustest.Log(t)); err == nil {
			nc.Close()
			t.Errorf("%s: accepted", what)
		}
	}
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
