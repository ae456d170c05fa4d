package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/bus"
	"proxyfleet/internal/bus/bustest"
)

const host = "host-1"

// build makes the agent with the tag that lets it be killed at a step.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	if out, err := exec.Command("go", "build", "-tags", "faults", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

// rig is a server with a leader's pen, and a directory for one agent.
type rig struct {
	t       *testing.T
	program string
	fleet   *bus.Fleet
	leader  *bus.Leader
	states  *bustest.Stream
	server  *bustest.Server
	config  string
	state   string
	log     *bytes.Buffer // of every run
}

func newRig(t *testing.T, program string) *rig {
	t.Helper()
	r := &rig{t: t, program: program, log: &bytes.Buffer{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	r.server, r.fleet = bustest.Fleet(t)
	r.leader = bustest.Lead(t, r.fleet, "test")
	r.states = bustest.Follow(t, r.fleet, r.fleet.Names().States(), "")
	if err := r.fleet.AdmitHost(bustest.Context(t), host, bus.Admission{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r.config, r.state = filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "state")
	text := fmt.Sprintf("host: {name: %s}\nnats: {url: %q}\nstateDir: %s\nbackend: {type: local, allowLoopback: true}\nhttp: {address: '127.0.0.1:0'}\n"+
		"intervals: {beat: 200ms, retryMin: 50ms}\n", host, r.server.URL(), r.state)
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// run starts the agent; it is killed at the end of the test at the latest.
func (r *rig) run(killAt string) *exec.Cmd {
	r.t.Helper()
	c := exec.Command(r.program, "run", "--config", r.config)
	c.Env = append(os.Environ(), "PROXYFLEET_KILL_AT="+killAt)
	c.Stdout, c.Stderr = r.log, r.log
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _, _ = c.Process.Kill(), c.Wait() })
	return c
}

func (r *rig) assign(a bus.Assignment) {
	r.t.Helper()
	w := []bus.Write{{Subject: r.fleet.Names().Assign(host, a.Proxy, a.UID), Data: bus.Encode(a)}}
	if err := r.leader.Commit(bustest.Context(r.t), w); err != nil {
		r.t.Fatal(err)
	}
}

// hostID waits for a session's host document.
func (r *rig) hostID(session uint64) string {
	r.t.Helper()
	var h bus.Host
	r.states.Newest(r.fleet.Names().StateHost(host), func(m bus.Msg) (err error) {
		if h, err = bus.Decode[bus.Host](m.Data); err == nil && h.Session < session {
			err = fmt.Errorf("session %d", h.Session)
		}
		return err
	})
	bustest.Eventually(r.t, "unpin", func() error { return r.fleet.UnpinHost(bustest.Context(r.t), host) })
	return h.HostID
}

func (r *rig) phase(a bus.Assignment, p bus.Phase, session uint64) bus.State {
	r.t.Helper()
	var s bus.State
	r.states.Newest(r.fleet.Names().StateProxy(host, a.Proxy, a.UID), func(m bus.Msg) (err error) {
		if s, err = bus.Decode[bus.State](m.Data); err == nil && (s.Phase != p || s.Session < session) {
			err = fmt.Errorf("want %s in session %d, the newest state is %s", p, session, m.Data)
		}
		return err
	})
	return s
}

// answers asks for a page through the proxy.
func answers(s bus.State, auth *url.Userinfo, target string) error {
	at := net.JoinHostPort(s.Addresses[0].Address, fmt.Sprint(s.Addresses[0].Port))
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", User: auth, Host: at})}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Get(target)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func (r *rig) assignment() bus.Assignment {
	i := r.fleet.Installation()
	return bus.Assignment{Type: bus.TypeAssignment, Installation: i.ID, Incarnation: i.Incarnation, HostID: r.hostID(1), Proxy: "p1",
		UID: strings.ToLower(ulid.Make().String()), Generation: 1, Desired: bus.DesiredRunning,
		Spec: &bus.Spec{Auth: &bus.Auth{Username: "crawler", Password: "pass word%"}}}
}

// killLabels are the side effects of the local backend's Ensure, in order.
var killLabels = []string{"state.create", "lock.create", "config.write", "process.start", "state.update", "done"}

// An agent that is killed right before any of its side effects finishes at the next start,
// serves, and is stopped by a signal without its proxies.
func TestAnAgentKilledAtAnyStepFinishesAtTheNextStart(t *testing.T) {
	page, program := newPage(t), build(t)
	for _, label := range killLabels {
		t.Run(label, func(t *testing.T) {
			r := newRig(t, program)
			killed := r.run(label)
			a := r.assignment()
			r.assign(a)
			if err := killed.Wait(); err == nil || killed.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the agent ended with %v, want it killed at %s", err, label)
			}
			again := r.run("")
			r.hostID(2)
			s := r.phase(a, bus.PhaseRunning, 2)
			user := url.UserPassword("crawler", "pass word%")
			if err := answers(s, user, page); err != nil {
				t.Errorf("through the proxy: %v", err)
			}
			if err := again.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := again.Wait(); err != nil {
				t.Errorf("after SIGTERM: %v", err)
			}
			if err := answers(s, user, page); err != nil {
				t.Errorf("the proxy ended with its agent: %v", err)
			}
			last := r.run("")
			r.hostID(3)
			dead := a
			dead.Desired, dead.Spec, dead.Generation = bus.DesiredAbsent, nil, 2
			r.assign(dead)
			r.phase(dead, bus.PhaseGone, 3)
			if answers(s, user, page) == nil {
				t.Error("the proxy still answers")
			}
			_ = last.Process.Kill()
			_ = last.Wait()
			if strings.Contains(r.log.String(), "pass word%") {
				t.Error("the log has the password")
			}
		})
	}
}

func newPage(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }), ReadHeaderTimeout: time.Second}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + l.Addr().String()
}
