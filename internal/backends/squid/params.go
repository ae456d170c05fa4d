package squid

import (
	"net/netip"
	"strings"
	"time"

	"proxyfleet/internal/backends"
)

// Default paths, as Debian's package has them.
const (
	DefaultPasswords  = "/etc/squid/passwd"
	DefaultAuthHelper = "/usr/lib/squid/basic_ncsa_auth"
)

// ShutdownLifetime is how long Squid serves open tunnels once it was told to end.
const ShutdownLifetime = 3 * time.Second

// DefaultMaxFileDescriptors is the limit that Debian's unit gives Squid; each tunnel takes
// two.
const DefaultMaxFileDescriptors = 65535

// Params are one proxy's.
type Params struct {
	UID    string // salts the password's hash, so that files are the same each time
	Port   int    // 1 to 65535
	Access backends.Access

	// Listen is the address to listen on; invalid: all.
	Listen netip.Addr
	// Egress is the source address of outgoing connections; invalid: the system's choice.
	Egress netip.Addr
	// Own are addresses of the proxy's own, refused as destinations, where they are known.
	Own []netip.Addr
	// OwnAddresses is a file with more of them, one a line; empty: none. Squid does not
	// start when it is missing.
	OwnAddresses string
	// Loopback allows this host as a destination: for tests and demonstrations only.
	Loopback bool

	MaxFileDescriptors int    // default DefaultMaxFileDescriptors
	Passwords          string // path of the password file; default DefaultPasswords
	AuthHelper         string // path of basic_ncsa_auth; default DefaultAuthHelper
	PIDFile            string // path, or "none"; default: Squid's own
	CacheLog           string // path of Squid's own log; default: Squid's own
}

func (p Params) withDefaults() Params {
	if p.MaxFileDescriptors == 0 {
		p.MaxFileDescriptors = DefaultMaxFileDescriptors
	}
	if p.Passwords == "" {
		p.Passwords = DefaultPasswords
	}
	if p.AuthHelper == "" {
		p.AuthHelper = DefaultAuthHelper
	}
	return p
}

// check refuses what cannot be rendered safely, as ErrPermanent.
func (p Params) check() error {
	refuse := func(format string, args ...any) error {
		return backends.Errorf(backends.ErrPermanent, "render squid", format, args...)
	}
	if err := p.Access.Validate(); err != nil {
		return backends.Wrap(backends.ErrPermanent, "render squid", err, "access rules")
	}
	switch {
	case p.Port < 1 || p.Port > 65535:
		return refuse("port %d is not between 1 and 65535", p.Port)
	case p.UID == "":
		return refuse("the uid is empty")
	case p.MaxFileDescriptors < 64 || p.MaxFileDescriptors > 1<<20:
		return refuse("%d file descriptors are not between 64 and %d", p.MaxFileDescriptors, 1<<20)
	case p.Listen.Zone() != "" || p.Egress.Zone() != "":
		return refuse("addresses with a zone are not supported")
	}
	for _, path := range []string{p.Passwords, p.AuthHelper, p.PIDFile, p.CacheLog, p.OwnAddresses} {
		if !plainPath(path) {
			return refuse("path %q has characters that a configuration file could read in another way", path)
		}
	}
	return nil
}

// plainPath accepts letters, digits and "/._-", which mean nothing to Squid's parser.
func plainPath(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == ""
}
