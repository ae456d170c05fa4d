package libvirt

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
)

// driver is the driver of libvirt's that is asked for, wherever the daemon is.
const driver = "qemu:///system"

// Ports of remote daemons. Source: https://libvirt.org/uri.html#transport-configuration.
const (
	sshPort = "22"
	tlsPort = "16514"
)

// sockets are where a daemon listens: the monolithic one (or virtproxyd in its place), then
// the modular one, which serves pools and networks as well by passing on what it does not
// do itself.
var sockets = []string{"/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock"}

// endpoint is where the daemon is, as the configured URI says.
type endpoint struct {
	transport string // "unix", "ssh" or "tls"
	user      string // of ssh
	address   string // host:port of ssh and tls
	host      string // as in the URI, which a certificate has to name
	sockets   []string
}

// Remote reports whether the daemon is on another machine than the agent, whose files and
// devices then say nothing about it. A URI that cannot be used is not remote.
func (c Config) Remote() bool {
	e, err := c.endpoint()
	return err == nil && e.transport != "unix"
}

// endpoint takes the URI apart.
func (c Config) endpoint() (endpoint, error) {
	u, err := url.Parse(c.URI)
	if err != nil {
		return endpoint{}, errors.New("it is no URI") // its text may have a password
	}
	e := endpoint{transport: "unix", host: u.Hostname(), sockets: sockets}
	scheme, transport, named := strings.Cut(u.Scheme, "+")
	if named {
		e.transport = transport
	}
	if scheme != "qemu" || u.Path != "/system" {
		return endpoint{}, fmt.Errorf("want qemu:///system, qemu+ssh://[user@]host/system or qemu+tls://host/system, not %s", u.Redacted())
	}
	if _, has := u.User.Password(); has {
		return endpoint{}, errors.New("a password has no place in it; use ssh.keyFile")
	}
	port := u.Port()
	switch e.transport {
	case "unix":
		if u.Host != "" {
			return endpoint{}, fmt.Errorf("say how %s is reached: qemu+ssh:// or qemu+tls://", u.Host)
		}
	case "ssh":
		e.user = u.User.Username()
		if e.user == "" {
			e.user = "root"
		}
		if port == "" {
			port = sshPort
		}
	case "tls":
		if u.User.Username() != "" {
			return endpoint{}, errors.New("qemu+tls takes no user: the certificate says who the agent is")
		}
		if port == "" {
			port = tlsPort
		}
	default:
		return endpoint{}, fmt.Errorf("transport %q is none of unix, ssh, tls", e.transport)
	}
	if e.transport != "unix" {
		if e.host == "" {
			return endpoint{}, fmt.Errorf("qemu+%s needs a host", e.transport)
		}
		e.address = net.JoinHostPort(e.host, port)
	}
	for key, values := range u.Query() {
		if key != "socket" || e.transport == "tls" {
			return endpoint{}, fmt.Errorf("parameter %q is not known here; what belongs to a transport stands under ssh or tls", key)
		}
		if !filepath.IsAbs(values[0]) {
			return endpoint{}, fmt.Errorf("socket %q is not an absolute path", values[0])
		}
		e.sockets = values[:1]
	}
	return e, nil
}
