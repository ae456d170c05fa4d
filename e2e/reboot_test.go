//go:build real

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
	"proxyfleet/internal/bus"
)

// runs waits until the guest of uid runs.
func runs(t testing.TB, d libvirttest.Daemon, uid string) {
	t.Helper()
	eventually(t, 60*time.Second, func() error {
		state, err := d.TryVirsh("domstate", backends.InstanceName(uid))
		if err != nil || !strings.Contains(state, "running") {
			return fmt.Errorf("its domain is %s, %v", state, err)
		}
		return nil
	})
}

// TestAHostThatRebootsWhileNATSIsAwayBringsItsProxiesBack cuts the power of a host with one
// proxy that runs and one that was stopped. Nothing but the agent's record says which.
func TestAHostThatRebootsWhileNATSIsAwayBringsItsProxiesBack(t *testing.T) {
	d := libvirttest.Start(t)
	f := newFleet(t, "always")
	a := f.startAgent("kvm-1", libvirtAgent(d))
	f.publish("crawl-1", goodIntent)
	f.publish("crawl-2", strings.NewReplacer("crawl-1", "crawl-2", `"running"`, `"stopped"`).Replace(goodIntent))
	one, off := f.made("crawl-1"), f.awaitPhase("crawl-2", bus.PhaseStopped, 60*time.Second)

	f.server.kill()
	a.kill()
	d.Reboot(t)
	if running := d.Virsh(t, "list", "--name"); strings.TrimSpace(running) != "" {
		t.Fatalf("after the reboot these run already: %s", running)
	}
	a = f.startAgent("kvm-1", libvirtAgent(d))
	runs(t, d, one.UID)
	if state := d.Virsh(t, "domstate", backends.InstanceName(off.UID)); !strings.Contains(state, "shut off") {
		t.Errorf("the one that was stopped is %s", state)
	}

	f.startNATS()
	f.removeAll(90*time.Second, "crawl-1", "crawl-2")
	onlyBases(t, d)
	a.stop()
}

// TestTheAgentsUnitStopsBeforeTheGuestsDo holds the order by which an agent never starts what
// its host's shutdown stops: units stop in the reverse order of After=.
func TestTheAgentsUnitStopsBeforeTheGuestsDo(t *testing.T) {
	unit, err := os.ReadFile("../deploy/systemd/proxyfleet-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, guests := range []string{"libvirtd.service", "virtqemud.service", "libvirt-guests.service"} {
		if !regexp.MustCompile(`(?m)^After=.*\b` + regexp.QuoteMeta(guests)).Match(unit) {
			t.Errorf("the agent's unit is not After=%s", guests)
		}
	}
}

// TestTwoAgentsOnOneMachineKeepTwoHostsThatTakeNone keeps two hosts by SSH from this machine.
func TestTwoAgentsOnOneMachineKeepTwoHostsThatTakeNone(t *testing.T) {
	f := newFleet(t, "always")
	daemons := map[string]libvirttest.Daemon{}
	for _, host := range []string{"kvm-1", "kvm-2"} {
		d, sshd := libvirttest.Start(t), libvirttest.StartSSHD(t)
		daemons[host] = d
		f.startAgent(host, strings.Replace(libvirtAgent(d), fmt.Sprintf("uri: %q", d.URI()),
			fmt.Sprintf("uri: %q, ssh: {keyFile: %q, knownHostsFile: %q}", d.SSHURI(sshd), sshd.KeyFile, sshd.KnownHosts), 1))
	}
	records := map[string]bus.Record{}
	for host, proxy := range map[string]string{"kvm-1": "crawl-1", "kvm-2": "crawl-2"} {
		f.publish(proxy, strings.ReplaceAll(strings.Replace(goodIntent, `"spec":{`, `"spec":{"placement":{"host":"`+host+`"},`, 1), "crawl-1", proxy))
		records[host] = f.made(proxy)
	}
	for host, d := range daemons {
		onlyDomain(t, d, records[host].UID)
		n := backends.InstanceName(records[host].UID)
		d.Virsh(t, "destroy", n)
		runs(t, d, records[host].UID)
	}
	for _, p := range []string{"crawl-1", "crawl-2"} {
		f.publish(p, `{"name":"`+p+`","desired":"absent"}`)
		f.awaitNoTrace(p, 60*time.Second)
	}
	for _, d := range daemons {
		onlyBases(t, d)
	}
}
