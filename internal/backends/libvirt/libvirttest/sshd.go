package libvirttest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSHD is an OpenSSH server of a test's own on a port of loopback, which lets root in with
// one key.
type SSHD struct {
	Address    string // host:port
	KeyFile    string // the key that it takes
	KnownHosts string // the file with its host key

	mu       sync.Mutex // guards the fields that follow
	sessions []*exec.Cmd
	ended    bool
}

// StartSSHD runs a server until t ends, with lines added before the configuration's own, of
// which sshd takes the first of a kind. Each connection has a process of its own.
func StartSSHD(t testing.TB, lines ...string) *SSHD {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll("/run/sshd", 0o755)) // sshd empties itself into it
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &SSHD{Address: listener.Addr().String(), KeyFile: filepath.Join(dir, "client"), KnownHosts: filepath.Join(dir, "known_hosts")}
	hostKey := WriteSSHKey(t, filepath.Join(dir, "host"))
	clientKey := WriteSSHKey(t, s.KeyFile)
	// The least that a key needs, as docs/libvirt.md tells people.
	must(t, os.WriteFile(filepath.Join(dir, "authorized"), append([]byte(`restrict,port-forwarding,command="/bin/false" `), ssh.MarshalAuthorizedKey(clientKey)...), 0o600))
	must(t, os.WriteFile(s.KnownHosts, []byte(KnownHost(s.Address, hostKey)), 0o600))
	config := ""
	for _, line := range lines {
		config += line + "\n"
	}
	config += fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n",
		filepath.Join(dir, "host"), filepath.Join(dir, "authorized"))
	must(t, os.WriteFile(filepath.Join(dir, "sshd_config"), []byte(config), 0o600))
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serve(&serving, conn.(*net.TCPConn), filepath.Join(dir, "sshd_config"))
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
		s.Signal(syscall.SIGKILL)
		serving.Wait()
	})
	return s
}

// serve hands a connection to a process, as inetd does.
func (s *SSHD) serve(serving *sync.WaitGroup, conn *net.TCPConn, config string) {
	defer func() { _ = conn.Close() }()
	file, err := conn.File()
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	cmd := exec.Command("/usr/sbin/sshd", "-i", "-f", config)
	cmd.Stdin, cmd.Stdout = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || cmd.Start() != nil {
		return
	}
	s.sessions = append(s.sessions, cmd)
	serving.Go(func() { _ = cmd.Wait() })
}

// Sessions is how many connections there have been.
func (s *SSHD) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sessions)
}

// Signal sends a signal to all processes of all connections; to those that ended it does
// nothing.
func (s *SSHD) Signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cmd := range s.sessions {
		_ = syscall.Kill(-cmd.Process.Pid, signal)
	}
}

// KnownHost is the line of a file of known hosts.
func KnownHost(address string, key ssh.PublicKey) string {
	return knownhosts.Line([]string{knownhosts.Normalize(address)}, key) + "\n"
}

// WriteSSHKey makes a key, writes its private half to a file and returns the public one.
func WriteSSHKey(t testing.TB, path string) ssh.PublicKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(t, err)
	must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	signer, err := ssh.NewSignerFromKey(private)
	must(t, err)
	return signer.PublicKey()
}
