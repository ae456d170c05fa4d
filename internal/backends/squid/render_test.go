package squid

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/secret"
)

var update = flag.Bool("update", false, "write the golden files anew")

const uid = "01jd3v6q4m8e2x5y7z9abcdefg"

func networks(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// goldens show every shape of a configuration.
var goldens = map[string]Params{
	"credentials": {UID: uid, Port: 3128, Access: backends.Access{Username: "crawler", Password: `p"w' $\#%`}},
	"networks":    {UID: uid, Port: 3128, Access: backends.Access{AllowFrom: networks("2001:db8::/32", "10.0.0.0/8", "10.0.0.0/8")}},
	"everything": {UID: uid, Port: 8080,
		Access: backends.Access{Username: "crawler", Password: "secret", AllowFrom: networks("10.0.0.0/8"), Private: true, ConnectPorts: []int{8443, 443, 22}},
		Listen: netip.MustParseAddr("2001:db8::1"), Egress: netip.MustParseAddr("192.0.2.1"),
		Own: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, OwnAddresses: DefaultOwnAddresses,
		MaxFileDescriptors: 4096, PIDFile: "none", CacheLog: "/dev/stderr"},
}

func TestRenderedFilesAreAsReviewed(t *testing.T) {
	for name, p := range goldens {
		f, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		for ext, got := range map[string][]byte{".conf": f.Conf, ".passwd": f.Passwords} {
			path := filepath.Join("testdata", name+ext)
			if *update && got != nil {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil && got != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (run with -update after a review): -want +got\n%s", path, diff)
			}
		}
	}
}

func TestEveryConfigurationEndsInDenyAllAndHasNoSecret(t *testing.T) {
	for name, p := range goldens {
		f, err := Render(p)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(f.Conf), "\nhttp_access deny all\n") {
			t.Errorf("%s does not end in deny all", name)
		}
		if pw := p.Access.Password.Reveal(); pw != "" && (bytes.Contains(f.Conf, []byte(pw)) || bytes.Contains(f.Passwords, []byte(pw))) {
			t.Errorf("%s has the password in plain", name)
		}
		if n := strings.Count(string(f.Conf), "http_access allow"); n != 1 {
			t.Errorf("%s has %d allow lines, want 1", name, n)
		}
	}
}

func TestWhatWouldBeOpenOrBreakOutIsRefused(t *testing.T) {
	good := Params{UID: uid, Port: 3128, Access: backends.Access{Username: "u", Password: "p"}}
	for name, spoil := range map[string]func(*Params){
		"no access rule":                func(p *Params) { p.Access = backends.Access{} },
		"no password":                   func(p *Params) { p.Access.Password = "" },
		"no username":                   func(p *Params) { p.Access.Username = "" },
		"a username with a colon":       func(p *Params) { p.Access.Username = "a:b" },
		"a username with a newline":     func(p *Params) { p.Access.Username = "a\nb:x" },
		"a username that is a comment":  func(p *Params) { p.Access.Username = "#a" },
		"a username that begins spaced": func(p *Params) { p.Access.Username = " a" },
		"a password with a NUL":         func(p *Params) { p.Access.Password = "a\x00b" },
		"a password too long":           func(p *Params) { p.Access.Password = secret.String(strings.Repeat("x", 256)) },
		"port 0":                        func(p *Params) { p.Port = 0 },
		"a port too high":               func(p *Params) { p.Port = 65536 },
		"a CONNECT port too high":       func(p *Params) { p.Access.ConnectPorts = []int{65536} },
		"no uid":                        func(p *Params) { p.UID = "" },
		"an invalid network":            func(p *Params) { p.Access.AllowFrom = []netip.Prefix{{}} },
		"a network with host bits":      func(p *Params) { p.Access.AllowFrom = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")} },
		"an IPv4-mapped network":        func(p *Params) { p.Access.AllowFrom = networks("::ffff:0:0/96") },
		"a path with a space":           func(p *Params) { p.CacheLog = "/a b" },
		"a path with a newline":         func(p *Params) { p.OwnAddresses = "/a\nhttp_access allow all" },
		"a listen address with a zone":  func(p *Params) { p.Listen = netip.MustParseAddr("fe80::1%eth0") },
		"too few descriptors":           func(p *Params) { p.MaxFileDescriptors = 1 },
	} {
		p := good
		spoil(&p)
		f, err := Render(p)
		if backends.Class(err) != backends.ErrPermanent || f.Conf != nil || f.Passwords != nil {
			t.Errorf("%s: got %v, want Permanent and nothing rendered", name, err)
		}
	}
	if _, err := Render(good); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// FuzzRender looks for a text that changes the shape of a file.
func FuzzRender(f *testing.F) {
	f.Add("crawler", "p w", "/etc/squid/passwd", uid)
	f.Add("a\nb", "c\nd", "/x\nhttp_access allow all", "u\n")
	f.Add("a:b", "\x00", `/x"`, "")
	plain, err := Render(Params{UID: uid, Port: 3128, Access: backends.Access{Username: "u", Password: "p"}, PIDFile: "/p", CacheLog: "/c", OwnAddresses: "/o"})
	if err != nil {
		f.Fatal(err)
	}
	lines := func(b []byte) int { return bytes.Count(b, []byte("\n")) }
	f.Fuzz(func(t *testing.T, username, password, path, uid string) {
		got, err := Render(Params{UID: uid, Port: 3128, Access: backends.Access{Username: username, Password: secret.String(password)},
			Passwords: path, AuthHelper: path, PIDFile: "/p" + path, CacheLog: "/c" + path, OwnAddresses: "/o" + path})
		if err != nil {
			return
		}
		if lines(got.Conf) != lines(plain.Conf) || lines(got.Passwords) != 1 {
			t.Errorf("a text changed the number of lines:\n%s%s", got.Conf, got.Passwords)
		}
		if strings.Count(string(got.Passwords), ":") != 1 {
			t.Errorf("a text changed the fields of %q", got.Passwords)
		}
	})
}

func TestTheShutdownLifetimeIsTheOneThatOthersRelyOn(t *testing.T) {
	f, err := Render(goldens["credentials"])
	if want := fmt.Sprintf("\nshutdown_lifetime %d seconds\n", int(ShutdownLifetime.Seconds())); err != nil || !strings.Contains(string(f.Conf), want) {
		t.Errorf("the configuration lacks %q (%v)", want, err)
	}
}
