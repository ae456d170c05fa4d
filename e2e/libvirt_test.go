//go:build real

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
	"proxyfleet/internal/bus"
)

// libvirtAgent is an agent.yaml for a daemon of a test's own. Its guests never boot.
func libvirtAgent(d libvirttest.Daemon) string {
	return fmt.Sprintf(`backend: {type: libvirt, uri: %q}
images:
  empty: {file: %q}
machineTypes: {tiny: {vcpus: 1, memoryMiB: 64}}
defaults: {image: empty, machineType: tiny, diskGiB: 1}
limits: {overcommit: {vcpus: 100}}
intervals: {beat: 1s, list: 5s, retryMin: 200ms, retryMax: 2s}
`, d.URI(), d.Image())
}

// made waits until the guest of a proxy was started, and returns the record.
func (f *fleet) made(proxy string) bus.Record {
	f.t.Helper()
	return f.await(proxy, 60*time.Second, "waiting for its guest", func(r bus.Record) bool {
		return r.Phase == bus.PhaseProvisioning && strings.HasPrefix(r.Step, "waiting") || r.Phase == bus.PhaseRunning
	})
}

// onlyDomain fails unless exactly the instance of uid runs.
func onlyDomain(t testing.TB, d libvirttest.Daemon, uid string) {
	t.Helper()
	all := strings.Fields(d.Virsh(t, "list", "--all", "--name"))
	running := strings.Fields(d.Virsh(t, "list", "--name"))
	if want := []string{backends.InstanceName(uid)}; !slices.Equal(all, want) || !slices.Equal(running, want) {
		t.Errorf("domains %v, running %v, want %v", all, running, want)
	}
}

// onlyBases fails when the pool holds anything but base images and their notes.
func onlyBases(t testing.TB, d libvirttest.Daemon) {
	t.Helper()
	if all := strings.Fields(d.Virsh(t, "list", "--all", "--name")); len(all) > 0 {
		t.Errorf("domains are left: %v", all)
	}
	err := filepath.WalkDir(d.PoolDir(), func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.Contains(e.Name(), "pf-") && !strings.Contains(e.Name(), "base") {
			t.Errorf("left in the pool: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// stepsOf runs a whole life of a proxy and returns the labels of its side effects: those
// of the create, and those of the delete.
func stepsOf(t *testing.T, f *fleet, d libvirttest.Daemon) (create, remove []string) {
	log := filepath.Join(f.dir, "steps")
	a := f.startAgent("kvm-1", libvirtAgent(d), "PROXYFLEET_STEPS="+log)
	read := func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(text))
	}
	f.publish("first", strings.ReplaceAll(goodIntent, "crawl-1", "first"))
	f.made("first")
	create = read()
	f.publish("first", `{"name":"first","desired":"absent"}`)
	f.awaitNoTrace("first", 60*time.Second)
	remove = read()[len(create):]
	a.stop()
	unique := func(in []string) []string { slices.Sort(in); return slices.Compact(in) }
	return unique(create), unique(remove)
}

// TestAnAgentThatIsKilledAtAnyStepFinishesAtItsNextStart kills the agent with SIGKILL right
// before each side effect of a create and of a delete on a real libvirtd.
func TestAnAgentThatIsKilledAtAnyStepFinishesAtItsNextStart(t *testing.T) {
	d := libvirttest.Start(t)
	f := newFleet(t, "always")
	create, remove := stepsOf(t, f, d)
	t.Logf("create: %v", create)
	t.Logf("delete: %v", remove)
	if len(create) < 5 || len(remove) < 5 {
		t.Fatalf("too few steps were seen: create %v, delete %v", create, remove)
	}
	for n := range max(len(create), len(remove)) {
		var c, r string
		if n < len(create) {
			c = create[n]
		}
		if n < len(remove) {
			r = remove[n]
		}
		t.Run("create "+c+", delete "+r, func(t *testing.T) { f.in(t).lifeCutOff(d, fmt.Sprintf("crawl-%d", n), c, r) })
	}
}

// lifeCutOff makes and deletes a proxy on the daemon. The agent dies at one step of
// the create and at one of the delete, where they are named.
func (f *fleet) lifeCutOff(d libvirttest.Daemon, proxy, killCreate, killDelete string) {
	t := f.t
	t.Helper()
	change := func(label, doc string) *proc {
		if label != "" {
			a := f.startAgent("kvm-1", libvirtAgent(d), "PROXYFLEET_KILL_AT="+label)
			f.publish(proxy, doc)
			a.waitKilled(30 * time.Second)
		}
		a := f.startAgent("kvm-1", libvirtAgent(d))
		if label == "" {
			f.publish(proxy, doc)
		}
		return a
	}
	if strings.HasPrefix(killCreate, "image.") {
		removeBases(t, d) // else there is nothing to fetch
	}
	a := change(killCreate, strings.ReplaceAll(goodIntent, "crawl-1", proxy))
	r := f.made(proxy)
	onlyDomain(t, d, r.UID)
	a.stop()
	a = change(killDelete, `{"name":"`+proxy+`","desired":"absent"}`)
	f.awaitNoTrace(proxy, 60*time.Second)
	if left := d.Traces(t, r.UID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	onlyBases(t, d)
	a.stop()
}

// removeBases forgets every base image, as an operator does who removes them by hand.
func removeBases(t testing.TB, d libvirttest.Daemon) {
	t.Helper()
	for _, pattern := range []string{"pf-base-*", ".proxyfleet/base-*", ".proxyfleet/pin-*"} {
		names, err := filepath.Glob(filepath.Join(d.PoolDir(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestALibvirtdThatGoesAwayTakesNothingWithIt ends the daemon while a guest is being made
// and while it runs.
func TestALibvirtdThatGoesAwayTakesNothingWithIt(t *testing.T) {
	d := libvirttest.Start(t)
	f := newFleet(t, "always")
	a := f.startAgent("kvm-1", libvirtAgent(d))
	f.publish("crawl-1", goodIntent)
	r := f.made("crawl-1")
	up := d.Down(t)
	time.Sleep(3 * time.Second)
	if now, ok, err := f.record("crawl-1"); err != nil || !ok || now.UID != r.UID || now.Phase == bus.PhaseGone || now.Phase == bus.PhaseFailed {
		t.Errorf("while libvirtd is away the record is %+v, %v", now, err)
	}
	f.publish("crawl-2", strings.ReplaceAll(goodIntent, "crawl-1", "crawl-2"))
	f.await("crawl-2", 30*time.Second, "waiting for the daemon", func(r bus.Record) bool {
		return strings.Contains(r.Waiting, "libvirtd cannot be reached") || r.Error != nil && r.Error.Code == "Transient"
	})
	up()
	r2 := f.made("crawl-2")
	for _, uid := range []string{r.UID, r2.UID} {
		if state := d.Virsh(t, "domstate", backends.InstanceName(uid)); !strings.Contains(state, "running") {
			t.Errorf("domain of %s is %s", uid, state)
		}
	}
	f.removeAll(60*time.Second, "crawl-1", "crawl-2")
	onlyBases(t, d)
	a.stop()
}

// TestAForeignDomainUnderOurNameIsLeftAlone plants a domain of somebody else under the name
// that a proxy's instance is about to get.
func TestAForeignDomainUnderOurNameIsLeftAlone(t *testing.T) {
	d := libvirttest.Start(t)
	f := newFleet(t, "always")
	a := f.startAgent("kvm-1", libvirtAgent(d))
	eventually(t, 20*time.Second, func() error {
		var h bus.HostRecord
		if ok, err := f.get(f.names.Hosts(), "kvm-1", &h); err != nil || !ok || len(h.Offer.Images) == 0 {
			return fmt.Errorf("host kvm-1 offers nothing yet: %+v, %v", h, err)
		}
		return nil
	})
	a.stop() // so that the uid is known before the instance is made
	f.publish("crawl-1", goodIntent)
	r := f.await("crawl-1", 10*time.Second, "bound", func(r bus.Record) bool { return r.UID != "" })
	name := backends.InstanceName(r.UID)
	d.Define(t, fmt.Sprintf(`<domain type="qemu"><name>%s</name><memory unit="MiB">32</memory><os><type>hvm</type></os></domain>`, name))
	before := d.Virsh(t, "dumpxml", name)

	f.startAgent("kvm-1", libvirtAgent(d))
	eventually(t, 30*time.Second, func() error {
		for _, e := range f.events(f.names.EventProxy("crawl-1")) {
			if text, _ := json.Marshal(e); strings.Contains(string(text), "Conflict") && strings.Contains(string(text), name) {
				return nil
			}
		}
		return fmt.Errorf("no event tells of the conflict: %+v", f.events(f.names.EventProxy("crawl-1")))
	})
	if after := d.Virsh(t, "dumpxml", name); after != before {
		t.Errorf("the foreign domain was changed:\n%s\nwas\n%s", after, before)
	}
}
