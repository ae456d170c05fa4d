//go:build real

package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"proxyfleet/internal/bus"
)

// TestAHostThatWasInstalledAnewTakesUpWhatItHad loses a host's state directory, as a new
// installation of the machine does, while its proxy runs on, and makes it the same host again.
func TestAHostThatWasInstalledAnewTakesUpWhatItHad(t *testing.T) {
	f := newFleet(t, "always")
	a := f.startAgent("here", localAgent)
	f.publish("crawl-1", goodIntent)
	r := f.awaitPhase("crawl-1", bus.PhaseRunning, 30*time.Second)
	t.Cleanup(func() { f.endProxies(r.UID) })
	pids := f.proxyProcesses(r.UID)
	var before bus.HostRecord
	if ok, err := f.get(f.names.Hosts(), "here", &before); !ok || err != nil {
		t.Fatal(ok, err)
	}
	a.stop()
	for _, lost := range []string{"identity.json", "record*"} {
		files, err := filepath.Glob(filepath.Join(f.dir, "here", lost))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", lost, files, err)
		}
		mustRun(t, "rm", append([]string{"-r"}, files...)...)
	}
	mustRun(t, program(t, "agent"), "restore-identity", "--config", filepath.Join(f.dir, "here.yaml"),
		"--host-id", before.HostID, "--session", strconv.FormatUint(before.Session, 10))
	f.startAgent("here", localAgent)
	eventually(t, 30*time.Second, func() error {
		var now bus.HostRecord
		if _, err := f.get(f.names.Hosts(), "here", &now); err != nil || now.HostID != before.HostID || now.Session <= before.Session || len(now.Unclaimed) > 0 {
			return fmt.Errorf("the host is %+v, %v", now, err)
		}
		return nil
	})
	if again := f.awaitPhase("crawl-1", bus.PhaseRunning, 30*time.Second); again.UID != r.UID {
		t.Errorf("uid %s, was %s", again.UID, r.UID)
	}
	if now := f.proxyProcesses(r.UID); len(now) != 1 || len(pids) != 1 || now[0] != pids[0] {
		t.Errorf("processes %v, were %v", now, pids)
	}
	f.publish("crawl-1", `{"name":"crawl-1","desired":"absent"}`)
	f.awaitNoTrace("crawl-1", 30*time.Second)
	if now := f.proxyProcesses(r.UID); len(now) > 0 {
		t.Errorf("left: %v", now)
	}
	if out, err := run(t, program(t, "agent"), "restore-identity", "--config", filepath.Join(f.dir, "here.yaml"),
		"--host-id", before.HostID, "--session", "1"); err == nil {
		t.Errorf("a host that is one became another: %s", out)
	}
}
