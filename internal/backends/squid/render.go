package squid

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/egress"
	"proxyfleet/internal/backends/passwd"
)

// Files are what a Squid needs.
type Files struct {
	Conf      []byte // squid.conf; has no secret
	Passwords []byte // for Params.Passwords, readable by Squid's user only; nil: no credentials are needed
}

// Render makes the files, or returns ErrPermanent for parameters that would leave the proxy
// open or break out of a file.
func Render(p Params) (Files, error) {
	p = p.withDefaults()
	if err := p.check(); err != nil {
		return Files{}, err
	}
	f := Files{Conf: conf(p)}
	if p.Access.Username != "" {
		// The helper takes a line that begins with "#" or a space for a comment; Validate
		// refuses such names.
		hash, err := passwd.Hash(p.UID, p.Access.Username, p.Access.Password)
		if err != nil {
			return Files{}, backends.Wrap(backends.ErrPermanent, "render squid", err, "password of proxy %s", p.UID)
		}
		f.Passwords = []byte(p.Access.Username + ":" + hash + "\n")
	}
	return f, nil
}

func conf(p Params) []byte {
	var c writer
	c.section("Written by proxyfleet; changes are overwritten.")
	if p.Listen.IsValid() {
		c.line("http_port", netip.AddrPortFrom(p.Listen, uint16(p.Port)).String())
	} else {
		c.line("http_port", fmt.Sprint(p.Port))
	}
	c.line("visible_hostname", "proxy")
	c.line("max_filedescriptors", fmt.Sprint(p.MaxFileDescriptors))
	if p.PIDFile != "" {
		c.line("pid_filename", p.PIDFile)
	}
	if p.CacheLog != "" {
		c.line("cache_log", p.CacheLog)
	}
	if p.Egress.IsValid() {
		c.line("tcp_outgoing_address", p.Egress.String())
	}
	c.text(fixed)
	clients(&c, p)
	destinations(&c, p)
	c.section("Everything else")
	c.line("http_access", "deny all")
	return c.Bytes()
}

// fixed does not depend on parameters.
const fixed = `
# Nothing tells of the client or of the proxy.
forwarded_for delete
via off
httpd_suppress_version_string on
reply_header_access X-Cache deny all
reply_header_access X-Cache-Lookup deny all
reply_header_access X-Squid-Error deny all

# Nothing is kept: no cache, no record of requests.
cache deny all
cache_mem 0 MB
access_log none
cache_store_log none
client_db off
memory_pools off

# A stop ends open tunnels soon.
shutdown_lifetime 3 seconds
pinger_enable off
# What a name resolved to is kept this long at least: what was compared is dialled.
negative_dns_ttl 60 seconds

# Squid's own pages and methods that no crawler needs
acl trace method TRACE
acl other_schemes proto FTP URN
http_access deny manager
http_access deny trace
http_access deny other_schemes
`

// clients renders who may use the proxy; each rule that a client fails ends its request.
func clients(c *writer, p Params) {
	if len(p.Access.AllowFrom) > 0 {
		c.section("Clients come from these networks")
		for _, n := range disjoint(p.Access.AllowFrom) {
			c.line("acl", "clients", "src", n.String())
		}
		c.line("http_access", "deny !clients")
	}
	if p.Access.Username != "" {
		c.section("Clients have credentials")
		c.line("auth_param", "basic program", p.AuthHelper, p.Passwords)
		c.line("auth_param", "basic children 10 startup=1 idle=1")
		c.line("auth_param", "basic realm proxy")
		c.line("auth_param", "basic credentialsttl 10 minutes")
		c.line("auth_param", "basic casesensitive on")
		c.line("acl", "authenticated", "proxy_auth REQUIRED")
		c.line("http_access", "deny !authenticated")
	}
}

// destinations renders where clients may go, and lets the rest of the requests pass.
func destinations(c *writer, p Params) {
	rules := egress.Rules{Private: p.Access.Private, ConnectPorts: p.Access.ConnectPorts, Loopback: p.Loopback}
	connect := []int{egress.HTTPSPort}
	connect = append(connect, p.Access.ConnectPorts...)
	slices.Sort(connect)
	connect = slices.Compact(connect)
	c.section("Ports")
	c.line("acl", "http_ports", "port", fmt.Sprint(egress.HTTPPort), fmt.Sprintf("%d-65535", egress.FirstFreePort))
	for _, port := range connect {
		c.line("acl", "connect_ports", "port", fmt.Sprint(port))
	}
	c.line("http_access", "deny !http_ports !connect_ports")
	c.line("http_access", "deny CONNECT !connect_ports")
	c.section("Destinations that are refused")
	refuse(c, "reserved", rules.RefusedAlways())
	if !p.Access.Private {
		refuse(c, "private", egress.Private())
	}
	own := make([]netip.Prefix, 0, len(p.Own))
	for _, a := range p.Own {
		if a = a.Unmap().WithZone(""); a.IsValid() {
			own = append(own, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	if p.OwnAddresses != "" {
		c.line("acl", "own", "dst", `"`+p.OwnAddresses+`"`)
	}
	if len(own) > 0 || p.OwnAddresses != "" {
		refuse(c, "own", own)
	}
	c.section("What is left")
	c.line("http_access", "allow", allowed(p))
}

// allowed names the rule that a client has passed already: allowing it, rather than
// everything, keeps a mistake above from opening the proxy.
func allowed(p Params) string {
	var acls []string
	if len(p.Access.AllowFrom) > 0 {
		acls = append(acls, "clients")
	}
	if p.Access.Username != "" {
		acls = append(acls, "authenticated")
	}
	return strings.Join(acls, " ")
}

// refuse renders one list of destinations. Lists that overlap have names of their own: of
// two networks in one ACL where one contains the other, Squid ignores the larger.
func refuse(c *writer, name string, networks []netip.Prefix) {
	for _, n := range disjoint(networks) {
		c.line("acl", name, "dst", n.String())
	}
	c.line("http_access", "deny", name)
}

// disjoint drops networks that lie in another one of the list, for the same reason.
func disjoint(in []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(in)
	slices.SortFunc(sorted, netip.Prefix.Compare) // a network comes before those inside it
	var out []netip.Prefix
	for _, n := range sorted {
		if len(out) == 0 || !out[len(out)-1].Overlaps(n) {
			out = append(out, n)
		}
	}
	return out
}

// writer makes a configuration line by line.
type writer struct{ bytes.Buffer }

func (w *writer) line(words ...string) { w.WriteString(strings.Join(words, " ") + "\n") }
func (w *writer) section(title string) {
	if w.Len() > 0 {
		w.WriteString("\n")
	}
	w.WriteString("# " + title + "\n")
}
func (w *writer) text(s string) { w.WriteString(s) }
