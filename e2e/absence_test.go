//go:build real

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// localAgent is an agent.yaml of a host whose proxies are processes.
const localAgent = "backend: {type: local, allowLoopback: true}\nintervals: {beat: 1s, list: 2s, check: 2s, grace: 1s, retryMin: 200ms}\n"

// TestNothingIsDeletedBecauseSomethingIsMissing takes things away from a fleet with a proxy
// that runs, one after another, and expects that the proxy goes on running and that the
// loss is said aloud.
func TestNothingIsDeletedBecauseSomethingIsMissing(t *testing.T) {
	f := newFleet(t, "always")
	a := f.startAgent("here", localAgent)
	f.publish("crawl-1", goodIntent)
	r := f.awaitPhase("crawl-1", bus.PhaseRunning, 30*time.Second)
	pids := f.proxyProcesses(r.UID)
	if len(pids) != 1 {
		t.Fatalf("processes of the proxy: %v, want one", pids)
	}
	alive := func(t *testing.T) {
		t.Helper()
		if now := f.proxyProcesses(r.UID); len(now) != 1 || now[0] != pids[0] {
			t.Fatalf("processes of the proxy: %v, want still %v", now, pids)
		}
		c, err := net.DialTimeout("tcp", net.JoinHostPort(r.Addresses[0].Address, strconv.Itoa(r.Addresses[0].Port)), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}

	t.Run("the inventory", func(t *testing.T) {
		for _, bucket := range []string{f.names.Proxies(), f.names.Hosts(), f.names.Endpoints()} {
			if out, err := f.nats("kv", "del", "--force", bucket); err != nil {
				t.Fatal(err, out)
			}
		}
		f.coordinator.stop() // also at rest it is rebuilt: a new leader writes everything
		f.startCoordinator()
		if again := f.awaitPhase("crawl-1", bus.PhaseRunning, 30*time.Second); again.UID != r.UID {
			t.Errorf("uid %s, was %s", again.UID, r.UID)
		}
		alive(t)
	})

	t.Run("the agent's record", func(t *testing.T) {
		a.stop()
		records, err := filepath.Glob(filepath.Join(f.dir, "here", "record*"))
		if err != nil || len(records) == 0 {
			t.Fatalf("no record in the state directory: %v", err)
		}
		for _, path := range records {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		a = f.startAgent("here", localAgent)
		eventually(t, 30*time.Second, func() error {
			text, err := os.ReadFile(records[0])
			if err == nil && !strings.Contains(string(text), r.UID) {
				return fmt.Errorf("the record does not have uid %s again", r.UID)
			}
			return err
		})
		f.awaitPhase("crawl-1", bus.PhaseRunning, 30*time.Second)
		if !strings.Contains(a.output(), "record") {
			t.Error("the agent did not say that its record was lost")
		}
		alive(t)
	})

	t.Run("the assignments, made anew while nobody leads", func(t *testing.T) {
		f.coordinator.stop()
		if out, err := f.nats("stream", "rm", "--force", f.names.Assignments()); err != nil {
			t.Fatal(err, out)
		}
		f.startCoordinator()
		select {
		case <-f.coordinator.done:
		case <-time.After(20 * time.Second):
			t.Fatalf("the coordinator goes on without its stream:\n%s", f.coordinator.output())
		}
		if out := f.coordinator.output(); !strings.Contains(out, f.names.Assignments()) {
			t.Errorf("the coordinator does not say which stream is missing:\n%s", out)
		}
		alive(t)
		time.Sleep(5 * time.Second) // several beats, listings and rebinds of the agent
		alive(t)
	})

	t.Run("the coordinator and the server", func(t *testing.T) {
		f.server.kill()
		a.kill()
		a = f.startAgent("here", localAgent)
		time.Sleep(3 * time.Second)
		alive(t)
		// A proxy that dies is brought back by the host alone.
		p, err := os.FindProcess(pids[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, func() error {
			if now := f.proxyProcesses(r.UID); len(now) != 1 || now[0] == pids[0] {
				return fmt.Errorf("processes %v, want a new one", now)
			}
			return nil
		})
	})
	f.endProxies(r.UID)
}

// TestAnInstanceThatNoAssignmentNamesIsReportedAndKept leaves a host with an instance of
// ours that the fleet does not know.
func TestAnInstanceThatNoAssignmentNamesIsReportedAndKept(t *testing.T) {
	f := newFleet(t, "always")
	a := f.startAgent("here", localAgent)
	f.publish("crawl-1", goodIntent)
	r := f.awaitPhase("crawl-1", bus.PhaseRunning, 30*time.Second)
	pids := f.proxyProcesses(r.UID)

	// Everything that knows of the uid forgets it: ledger, assignment, state, record, intent.
	f.coordinator.stop()
	a.stop()
	for stream, subject := range map[string]string{
		f.names.Assignments(): f.names.Assign("here", "crawl-1", r.UID),
		f.names.States():      f.names.StateProxy("here", "crawl-1", r.UID),
		f.names.Intents():     f.names.IntentProxy("crawl-1"),
	} {
		f.deleteMessages(stream, subject)
	}
	f.deleteMessages(f.names.Assignments(), f.names.Ledger("proxy", "crawl-1"))
	records, _ := filepath.Glob(filepath.Join(f.dir, "here", "record*"))
	for _, path := range records {
		_ = os.RemoveAll(path)
	}
	f.startCoordinator()
	f.startAgent("here", localAgent)
	eventually(t, 40*time.Second, func() error {
		var h bus.HostRecord
		if _, err := f.get(f.names.Hosts(), "here", &h); err != nil {
			return err
		}
		for _, u := range h.Unclaimed {
			if u.UID == r.UID && u.Proxy == "crawl-1" && u.Kind == "instance" {
				return nil
			}
		}
		return fmt.Errorf("unclaimed on the host: %+v", h.Unclaimed)
	})
	time.Sleep(5 * time.Second)
	if now := f.proxyProcesses(r.UID); len(now) != 1 || now[0] != pids[0] {
		t.Errorf("processes of the proxy: %v, want still %v", now, pids)
	}
	f.endProxies(r.UID)
}

// deleteMessages removes what a stream holds of a subject, each by its sequence.
func (f *fleet) deleteMessages(stream, subject string) {
	f.t.Helper()
	s, err := f.js.Stream(f.t.Context(), stream)
	if err != nil {
		f.t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(f.t.Context(), subject)
	if err != nil {
		f.t.Fatalf("%s in %s: %v", subject, stream, err)
	}
	if err := s.DeleteMsg(f.t.Context(), m.Sequence); err != nil {
		f.t.Fatal(err)
	}
}

// proxyProcesses are the local proxies whose command line names the uid.
func (f *fleet) proxyProcesses(uid string) []int {
	f.t.Helper()
	var pids []int
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, path := range lines {
		text, _ := os.ReadFile(path)
		if s := string(text); strings.Contains(s, "local-proxy") && strings.Contains(s, uid) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// endProxies ends those that a test leaves on purpose.
func (f *fleet) endProxies(uid string) {
	for _, pid := range f.proxyProcesses(uid) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}
