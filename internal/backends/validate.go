package backends

import (
	"net/netip"
	"strings"
)

// Bounds of what a backend accepts. They are the same as on the wire, and are checked again
// here because a backend builds names, paths and configuration from them.
const (
	MaxProxyName   = 52  // characters of a proxy's name, a DNS label
	MaxPoolName    = 44  // characters of a pool's name, a DNS label
	MaxCredential  = 255 // bytes of a username or password
	uidLength      = 26  // characters of a ULID
	crockfordLower = "0123456789abcdefghjkmnpqrstvwxyz"
)

// Validate reports a ref that no backend may build a name or a path from, as ErrPermanent.
// Proxy is a DNS label of at most [MaxProxyName] characters, UID a lower-case ULID.
func (r Ref) Validate() error {
	if !dnsLabel(r.Proxy, MaxProxyName) {
		return Errorf(ErrPermanent, "check ref", "proxy name %q is not a DNS label of at most %d characters", r.Proxy, MaxProxyName)
	}
	if len(r.UID) != uidLength || strings.Trim(r.UID, crockfordLower) != "" || r.UID[0] > '7' {
		return Errorf(ErrPermanent, "check ref", "uid %q of proxy %s is not a lower-case ULID", r.UID, r.Proxy)
	}
	return nil
}

// Validate reports a request that no backend may make, as ErrPermanent: a bad ref, no access
// rule, credentials or networks that cannot be rendered, a desired that is neither running
// nor stopped. Every Ensure calls it first.
func (r Request) Validate() error {
	if err := r.Ref.Validate(); err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return Errorf(ErrPermanent, "check request", "proxy "+r.Proxy+": "+format, args...)
	}
	if r.Desired != Running && r.Desired != Stopped {
		return refuse("desired is %q, want running or stopped", r.Desired)
	}
	if r.Port < 0 || r.Port > 65535 {
		return refuse("port %d is not between 0 and 65535", r.Port)
	}
	if r.DiskGiB < 0 {
		return refuse("disk of %d GiB is negative", r.DiskGiB)
	}
	if r.Pool != "" && !dnsLabel(r.Pool, MaxPoolName) {
		return refuse("pool name %q is not a DNS label of at most %d characters", r.Pool, MaxPoolName)
	}
	if err := r.Access.Validate(); err != nil {
		return refuse("%s", err)
	}
	return nil
}

// Validate reports access rules that are open to the world or cannot be rendered. Where
// credentials and networks are both given, a client needs both.
func (a Access) Validate() error {
	refuse := func(format string, args ...any) error {
		return Errorf(ErrPermanent, "check access", format, args...)
	}
	hasAuth := a.Username != "" || a.Password != ""
	switch {
	case !hasAuth && len(a.AllowFrom) == 0:
		return refuse("neither credentials nor client networks are given; a proxy is never open to the world")
	case hasAuth && (a.Username == "" || a.Password == ""):
		return refuse("username and password must both be given")
	case !printable(a.Username) || strings.Contains(a.Username, ":"):
		return refuse("the username must be printable ASCII without a colon")
	case strings.HasPrefix(a.Username, "#") || strings.TrimSpace(a.Username) != a.Username:
		return refuse("the username must not begin with # or a space, nor end with a space")
	case !printable(a.Password.Reveal()):
		return refuse("the password must be printable ASCII")
	case len(a.Username) > MaxCredential || len(a.Password) > MaxCredential:
		return refuse("username and password are at most %d characters each", MaxCredential)
	}
	for _, p := range a.AllowFrom {
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
			return refuse("client network %q is not a plain prefix without host bits", prefixText(p))
		}
	}
	for _, p := range a.ConnectPorts {
		if p < 1 || p > 65535 {
			return refuse("CONNECT port %d is not between 1 and 65535", p)
		}
	}
	return nil
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return "(invalid)"
	}
	return p.String()
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func dnsLabel(s string, most int) bool {
	if s == "" || len(s) > most || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
