package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	known "golang.org/x/crypto/ssh/knownhosts"

	"proxyfleet/internal/backends"
)

// SSH is how a qemu+ssh:// daemon is reached. Both files are read again at every dial, so
// that they can be rotated.
type SSH struct {
	KeyFile        string `yaml:"keyFile"`        // private key without a passphrase
	KnownHostsFile string `yaml:"knownHostsFile"` // as ssh-keyscan writes it; an unknown host is refused
}

// sshReach is a daemon behind an SSH server, which forwards to its unix socket. Operations
// have a channel each and share one SSH client: a client for each would be an
// authentication for each, of which servers take few at a time (MaxStartups).
type sshReach struct {
	at      endpoint
	files   SSH
	dialing chan struct{} // capacity 1; held while a client is made
	// signOfLife is keepaliveEvery but in tests.
	signOfLife time.Duration

	mu     sync.Mutex // guards the fields that follow; nothing blocks under it
	link   *sshLink   // nil until the first dial
	closed bool
}

func newSSHReach(e endpoint, files SSH) *sshReach {
	return &sshReach{at: e, files: files, dialing: make(chan struct{}, 1), signOfLife: keepaliveEvery}
}

func (r *sshReach) dial(ctx context.Context) (net.Conn, error) {
	link, err := r.current(ctx)
	if err != nil {
		return nil, err
	}
	return r.channel(ctx, link)
}

// fresh has an SSH client of its own, which ends with the connection.
func (r *sshReach) fresh(ctx context.Context) (net.Conn, error) {
	link, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := r.channel(ctx, link)
	if err != nil {
		_ = link.client.Close()
		return nil, err
	}
	return withLink{conn, link}, nil
}

// current is the client that operations share. This is the one place where it is made anew.
func (r *sshReach) current(ctx context.Context) (*sshLink, error) {
	select {
	case r.dialing <- struct{}{}:
		defer func() { <-r.dialing }()
	case <-ctx.Done():
		return nil, unreachable(ctx, backends.CheckUnreachable, ctx.Err(), "")
	}
	r.mu.Lock()
	link := r.link
	r.mu.Unlock()
	if link != nil && link.alive() {
		return link, nil
	}
	link, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	closed := r.closed
	r.link = link
	r.mu.Unlock()
	if closed {
		_ = link.client.Close()
		return nil, backends.Errorf(backends.ErrTransient, "connect", "the backend is closed")
	}
	return link, nil
}

// connect authenticates at the SSH server.
func (r *sshReach) connect(ctx context.Context) (*sshLink, error) {
	ctx, cancel := context.WithTimeout(ctx, dialBudget)
	defer cancel()
	config, err := r.files.load(r.at)
	if err != nil {
		return nil, unreachable(ctx, backends.CheckCredentialsUnavailable, err, "the files for ssh to %s cannot be used; correct ssh.keyFile or ssh.knownHostsFile", r.at.address)
	}
	raw, err := remoteDialer().DialContext(ctx, "tcp", r.at.address)
	if err != nil {
		return nil, unreachable(ctx, backends.CheckUnreachable, err, "the SSH server of %s cannot be reached; guests that run go on running", r.at.address)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	conn, channels, requests, err := ssh.NewClientConn(raw, r.at.address, config)
	if !stop() && err == nil {
		_ = conn.Close()
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		return nil, r.refused(ctx, err)
	}
	link := &sshLink{client: ssh.NewClient(conn, channels, requests), ended: make(chan struct{})}
	go func() {
		_ = link.client.Wait()
		close(link.ended)
	}()
	go link.keepAlive(r.signOfLife)
	return link, nil
}

func (r *sshReach) refused(ctx context.Context, err error) error {
	var unknown *known.KeyError
	switch {
	case errors.As(err, &unknown) && len(unknown.Want) == 0:
		return unreachable(ctx, backends.CheckHostKeyInvalid, err, "the host key of %s is not in %s; add it once you know that it is right (ssh-keyscan)",
			r.at.address, r.files.KnownHostsFile)
	case unknown != nil, errors.As(err, new(*known.RevokedError)), errors.As(err, new(*ssh.AlgorithmNegotiationError)):
		return unreachable(ctx, backends.CheckHostKeyInvalid, err, "the host key of %s is another than in %s: the host was installed anew, or it is another host; nothing was sent",
			r.at.address, r.files.KnownHostsFile)
	case strings.Contains(err.Error(), "ssh: unable to authenticate"): // it has no type
		return unreachable(ctx, backends.CheckUnauthorized, err, "%s does not take the key of user %s; add it to authorized_keys there, or correct ssh.keyFile",
			r.at.address, r.at.user)
	}
	return unreachable(ctx, backends.CheckUnreachable, err, "the SSH server of %s cannot be used; guests that run go on running", r.at.address)
}

// channel opens the daemon's socket on the host.
func (r *sshReach) channel(ctx context.Context, link *sshLink) (net.Conn, error) {
	var last error
	for _, path := range r.at.sockets {
		ch, err := link.client.DialContext(ctx, "unix", path)
		if err == nil {
			return detach(ch), nil
		}
		last = fmt.Errorf("%s: %w", path, err)
	}
	// OpenSSH gives the same answer to all of these.
	return nil, unreachable(ctx, backends.CheckUnreachable, last,
		"libvirtd on %s cannot be reached: it is down, or user %s may not use its socket (group libvirt), or the SSH server forwards to none (AllowStreamLocalForwarding); guests that run go on running",
		r.at.address, r.at.user)
}

// close ends the shared client, and with it every channel.
func (r *sshReach) close() {
	r.mu.Lock()
	link := r.link
	r.link, r.closed = nil, true
	r.mu.Unlock()
	if link != nil {
		_ = link.client.Close()
	}
}

// load reads the key and the known hosts.
func (f SSH) load(e endpoint) (*ssh.ClientConfig, error) {
	pem, err := os.ReadFile(f.KeyFile)
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.KeyFile, err)
	}
	hosts, err := knownhosts.NewDB(f.KnownHostsFile)
	if err != nil {
		return nil, fmt.Errorf("known hosts: %w", err)
	}
	return &ssh.ClientConfig{
		User: e.user, Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, HostKeyCallback: hosts.HostKeyCallback(),
		// Only kinds that are known: else a server would show one of its other keys.
		HostKeyAlgorithms: hosts.HostKeyAlgorithms(e.address),
	}, nil
}

// sshLink is an SSH client that tells when it has ended.
type sshLink struct {
	client *ssh.Client
	ended  chan struct{}
}

func (l *sshLink) alive() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// keepAlive ends the client when the server gives no sign of life. Only the client is
// closed, never a channel first: that would wait for the same silent server.
func (l *sshLink) keepAlive(every time.Duration) {
	for {
		select {
		case <-l.ended:
			return
		case <-time.After(every):
		}
		overdue := time.AfterFunc(every, func() { _ = l.client.Close() })
		_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
		overdue.Stop()
		if err != nil {
			return
		}
	}
}

// withLink closes a client together with its one channel.
type withLink struct {
	net.Conn
	link *sshLink
}

func (w withLink) Close() error {
	_ = w.link.client.Close()
	return w.Conn.Close()
}

// detached is a channel whose Close returns, and ends a Read and a Write, at once: that of
// a channel waits for the server, which may be silent until keepAlive ends the client.
type detached struct {
	net.Conn // the near end of a pipe
	once     sync.Once
	channel  net.Conn
}

func detach(channel net.Conn) net.Conn {
	near, far := net.Pipe()
	d := &detached{Conn: near, channel: channel}
	go func() {
		_, _ = io.Copy(channel, far)
		_ = d.Close()
	}()
	go func() {
		_, _ = io.Copy(far, channel)
		_ = far.Close()
	}()
	return d
}

func (d *detached) Close() error {
	d.once.Do(func() { go func() { _ = d.channel.Close() }() })
	return d.Conn.Close()
}
