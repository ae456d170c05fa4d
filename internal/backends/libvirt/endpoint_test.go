package libvirt

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
)

func TestAURISaysWhereTheDaemonIs(t *testing.T) {
	for uri, want := range map[string]endpoint{
		"qemu:///system":                    {transport: "unix", sockets: sockets},
		"qemu+unix:///system?socket=/run/x": {transport: "unix", sockets: []string{"/run/x"}},
		"qemu+ssh://kvm-9/system":           {transport: "ssh", user: "root", address: "kvm-9:22", host: "kvm-9", sockets: sockets},
		"qemu+ssh://me@kvm-9:2222/system?socket=/run/libvirt/virtqemud-sock": {transport: "ssh", user: "me", address: "kvm-9:2222", host: "kvm-9",
			sockets: []string{"/run/libvirt/virtqemud-sock"}},
		"qemu+tls://[2001:db8::1]/system": {transport: "tls", address: "[2001:db8::1]:16514", host: "2001:db8::1", sockets: sockets},
	} {
		c := Config{URI: uri}
		got, err := c.endpoint()
		if err != nil || got.transport != want.transport || got.user != want.user || got.address != want.address || got.host != want.host ||
			!slices.Equal(got.sockets, want.sockets) {
			t.Errorf("%s: got %+v (%v), want %+v", uri, got, err, want)
		}
		if c.Remote() != (want.transport != "unix") {
			t.Errorf("%s: remote is %v", uri, c.Remote())
		}
	}
}

func TestAURIThatCannotBeUsedIsRefusedWithoutItsPassword(t *testing.T) {
	for uri, want := range map[string]string{
		"xen:///system":                        "want qemu:///system",
		"qemu:///session":                      "want qemu:///system",
		"qemu://kvm-9/system":                  "qemu+ssh",
		"qemu+tcp://kvm-9/system":              "none of unix, ssh, tls",
		"qemu+ssh:///system":                   "needs a host",
		"qemu+ssh://me:secret@kvm-9/system":    "password",
		"qemu+ssh://me:secret@kvm-9/else":      "want qemu:///system",
		"qemu+ssh://kvm-9/system?keyfile=/k":   "keyfile",
		"qemu+tls://kvm-9/system?no_verify=1":  "no_verify",
		"qemu+tls://me@kvm-9/system":           "no user",
		"qemu+tls://kvm-9/system?socket=/run":  "socket",
		"qemu:///system?socket=run":            "not an absolute path",
		"qemu+ssh://me:secret@kvm-9:x/system":  "no URI",
		"qemu+ssh://me:secret@[kvm-9/system%%": "no URI",
	} {
		_, err := Config{URI: uri}.endpoint()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want it to say %q", uri, err, want)
		}
	}
}

func TestFilesOfATransportGoWithThatTransport(t *testing.T) {
	whole := SSH{KeyFile: "/k", KnownHostsFile: "/h"}
	for what, c := range map[string]struct {
		cfg  Config
		good bool
	}{
		"ssh with both":    {Config{URI: "qemu+ssh://kvm-9/system", SSH: whole}, true},
		"ssh without":      {Config{URI: "qemu+ssh://kvm-9/system"}, false},
		"ssh with one":     {Config{URI: "qemu+ssh://kvm-9/system", SSH: SSH{KeyFile: "/k"}}, false},
		"ssh, relative":    {Config{URI: "qemu+ssh://kvm-9/system", SSH: SSH{KeyFile: "k", KnownHostsFile: "/h"}}, false},
		"tls without":      {Config{URI: "qemu+tls://kvm-9/system"}, true},
		"tls with ssh":     {Config{URI: "qemu+tls://kvm-9/system", SSH: whole}, false},
		"a socket":         {Config{}, true},
		"a socket and ssh": {Config{SSH: whole}, false},
		"a socket and tls": {Config{TLS: TLS{CA: "/ca"}}, false},
	} {
		if err := c.cfg.withDefaults().validate(); (err == nil) != c.good {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

// TestModularAndMonolithicDaemonsAreFound has plain listeners in place of daemons: which one
// answers is all that is asked.
func TestModularAndMonolithicDaemonsAreFound(t *testing.T) {
	dir := t.TempDir()
	legacy, modular := filepath.Join(dir, "libvirt-sock"), filepath.Join(dir, "virtqemud-sock")
	r := unixReach{endpoint{sockets: []string{legacy, modular}}}
	dial := func() (string, error) {
		conn, err := r.dial(t.Context())
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close() }()
		return conn.RemoteAddr().String(), nil
	}
	if _, err := dial(); backends.Class(err) != backends.ErrTransient || !strings.Contains(err.Error(), "libvirt-sock") {
		t.Errorf("without a daemon: %v", err)
	}
	// A daemon that was killed leaves its socket behind.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: legacy})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	for _, want := range []string{modular, legacy} {
		_ = os.Remove(want)
		l, err := net.Listen("unix", want)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if got, err := dial(); err != nil || got != want {
			t.Errorf("got %s (%v), want %s", got, err, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.dial(ended); !backends.Ended(err) {
		t.Errorf("after the end of its context: %v", err)
	}
}
