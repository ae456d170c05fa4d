//go:build real

package libvirt

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

// throughSSH is a daemon's host as an agent elsewhere has it.
func throughSSH(d daemon, s *libvirttest.SSHD) Config {
	return Config{
		URI:      d.SSHURI(s),
		SSH:      SSH{KeyFile: s.KeyFile, KnownHostsFile: s.KnownHosts},
		VirtType: "qemu",
	}
}

// remoteHost is a backend on d by cfg; it is closed when t ends.
func remoteHost(t testing.TB, d daemon, cfg Config) host {
	t.Helper()
	b, err := openWith(d, cfg, backends.Owner{Installation: "01installation", HostID: "01host"}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	must(t, err)
	t.Cleanup(func() { must(t, b.Close()) })
	return host{d, b}
}

func TestAHostIsKeptThroughSSHWithOneConnection(t *testing.T) {
	d, sshd := startDaemon(t), libvirttest.StartSSHD(t)
	cfg := throughSSH(d, sshd)
	cfg.VirtType = "auto"
	h := remoteHost(t, d, cfg)
	h.tryKVM = func(string) error {
		t.Error("the agent's own device says nothing about another host")
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := h.Watch(ctx)
	awaitConnected(t, events)
	req := request(newRef())
	h.ensure(t, req)
	if i := h.get(t, req.Ref); i.Status != backends.StatusRunning {
		t.Errorf("got %+v, want Running", i)
	}
	h.Virsh(t, "destroy", backends.InstanceName(req.UID))
	awaitEvent(t, events, req.UID, "Stopped")
	h.delete(t, req.Ref)
	if n := sshd.Sessions(); n != 1 {
		t.Errorf("%d SSH connections were made for these operations, want 1", n)
	}
	wantCheck(t, h, "libvirtd", backends.CheckOK)
	if n := sshd.Sessions(); n != 2 {
		t.Errorf("%d SSH connections after a check, want 2: it tries the credentials themselves", n)
	}
}

func TestWhatIsWrongWithSSHHasACodeAndHealsWithoutARestart(t *testing.T) {
	d, sshd := startDaemon(t), libvirttest.StartSSHD(t)
	good := throughSSH(d, sshd)
	key, known := contents(t, good.SSH.KeyFile), contents(t, good.SSH.KnownHostsFile)
	dir := t.TempDir()
	cfg := good
	cfg.SSH = SSH{KeyFile: filepath.Join(dir, "key"), KnownHostsFile: filepath.Join(dir, "known")}
	h := remoteHost(t, d, cfg)
	put := func(key, known []byte) {
		t.Helper()
		must(t, os.WriteFile(cfg.SSH.KeyFile, key, 0o600))
		must(t, os.WriteFile(cfg.SSH.KnownHostsFile, known, 0o600))
	}
	otherKey, otherHost := libvirttest.StartSSHD(t), libvirttest.StartSSHD(t)
	another := contents(t, otherKey.KeyFile)
	line := contents(t, otherHost.KnownHosts)
	for _, c := range []struct {
		what, code string
		class      error
		spoil      func()
	}{
		{"no files", backends.CheckCredentialsUnavailable, backends.ErrHostFault, func() {}},
		{"a key that is none", backends.CheckCredentialsUnavailable, backends.ErrHostFault, func() { put([]byte("no key"), known) }},
		{"known hosts that are none", backends.CheckCredentialsUnavailable, backends.ErrHostFault, func() { put(key, []byte("no hosts\n")) }},
		{"a key that is not let in", backends.CheckUnauthorized, backends.ErrHostFault, func() { put(another, known) }},
		{"a host that is not known", backends.CheckHostKeyInvalid, backends.ErrHostFault, func() { put(key, line) }},
		{"another host key", backends.CheckHostKeyInvalid, backends.ErrHostFault, func() { put(key, anotherKeyOf(t, sshd.Address)) }},
	} {
		c.spoil()
		_, err := h.List(t.Context())
		if backends.Class(err) != c.class {
			t.Errorf("%s: got %v, want %v", c.what, err, c.class)
		}
		wantCheck(t, h, "libvirtd", c.code)
	}
	put(key, known)
	if _, err := h.List(t.Context()); err != nil {
		t.Errorf("with the right files: %v", err)
	}
	put(another, known)
	if _, err := h.List(t.Context()); err != nil {
		t.Errorf("a connection that is there was lost to a key that is not needed yet: %v", err)
	}
	wantCheck(t, h, "libvirtd", backends.CheckUnauthorized)
	if _, err := h.List(t.Context()); err != nil {
		t.Errorf("a verdict took the connection away: %v", err)
	}
}

func TestASocketThatSSHDoesNotReachIsNotTheProxysFault(t *testing.T) {
	d := startDaemon(t)
	closed, open := libvirttest.StartSSHD(t, "AllowStreamLocalForwarding no"), libvirttest.StartSSHD(t)
	none := throughSSH(d, open)
	none.URI = "qemu+ssh://root@" + open.Address + "/system?socket=" + d.Dir + "/none"
	for what, cfg := range map[string]Config{"forwarding is off": throughSSH(d, closed), "there is no socket": none} {
		h := remoteHost(t, d, cfg)
		wantCheck(t, h, "libvirtd", backends.CheckUnreachable)
		_, err := h.List(t.Context())
		if backends.Class(err) != backends.ErrTransient || !strings.Contains(err.Error(), "AllowStreamLocalForwarding") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestACallThatHangsTakesNoOthersConnection(t *testing.T) {
	d, sshd := startDaemon(t), libvirttest.StartSSHD(t)
	h := remoteHost(t, d, throughSSH(d, sshd))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := h.Watch(ctx)
	awaitConnected(t, events)
	req := request(newRef())
	h.ensure(t, req)
	d.Signal(t, syscall.SIGSTOP)
	short, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	began := time.Now()
	_, err := h.Get(short, req.Ref)
	wantClass(t, err, backends.ErrTransient)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the call ended after %s, want soon after its context", took)
	}
	d.Signal(t, syscall.SIGCONT)
	h.Virsh(t, "destroy", backends.InstanceName(req.UID))
	awaitEvent(t, events, req.UID, "Stopped") // on the connection from before
	if n := sshd.Sessions(); n != 1 {
		t.Errorf("%d SSH connections, want 1", n)
	}
	h.delete(t, req.Ref)
}

func TestASilentSSHServerIsGivenUpAndNothingIsLeft(t *testing.T) {
	d, sshd := startDaemon(t), libvirttest.StartSSHD(t)
	before := goleak.IgnoreCurrent()
	h := remoteHost(t, d, throughSSH(d, sshd))
	h.reach.(*sshReach).signOfLife = time.Second
	_, err := h.List(t.Context())
	must(t, err)
	sshd.Signal(syscall.SIGSTOP)
	short, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	_, err = h.List(short)
	wantClass(t, err, backends.ErrTransient)
	deadline := time.Now().Add(20 * time.Second)
	for {
		again, end := context.WithTimeout(t.Context(), 5*time.Second)
		_, err = h.List(again)
		end()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the silent server is still waited for: %v", err)
		}
	}
	if n := sshd.Sessions(); n != 2 {
		t.Errorf("%d SSH connections, want a second one", n)
	}
	must(t, h.Close())
	sshd.Signal(syscall.SIGCONT)
	sshd.Signal(syscall.SIGKILL)
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("proxyfleet/internal/backends/libvirt/libvirttest.StartSSHD.func1"),
		goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait"))
}

// anotherKeyOf are known hosts with another key for address.
func anotherKeyOf(t testing.TB, address string) []byte {
	t.Helper()
	return []byte(libvirttest.KnownHost(address, libvirttest.WriteSSHKey(t, filepath.Join(t.TempDir(), "key"))))
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func awaitConnected(t testing.TB, events <-chan backends.Event) {
	t.Helper()
	awaitEvent(t, events, "", "Connected")
}

func awaitEvent(t testing.TB, events <-chan backends.Event, uid, reason string) {
	t.Helper()
	for timeout := time.After(20 * time.Second); ; {
		select {
		case e := <-events:
			if e.UID == uid && e.Reason == reason {
				return
			}
		case <-timeout:
			t.Fatalf("no event %s of %q", reason, uid)
		}
	}
}
