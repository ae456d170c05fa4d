//go:build real && guest

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/bus"
)

const (
	bootTime = 10 * time.Minute // one to two without KVM on a machine that is quiet
	// Whatever has a meaning to a shell, to Squid, to a URL or to YAML.
	guestPassword = `p"w'$\ #%&<:@/`
	// Reaches the guest byte for byte: no line end at the end, a template, what is not ASCII.
	// Its keys are not those of the operator's vendor-data, which would give way to them.
	guestUserData = "#cloud-config\n# {{ v1.instance_id }} \t\"ü€\"\r\nbootcmd:\n  - [sh, -c, 'printf by-the-user >/etc/from-user']"
)

// TestAVirtualMachineFromIntentToDeletion is the whole way on this machine's own libvirtd:
// a Debian guest is booted by an intent, serves, is stopped, serves again, and is deleted.
func TestAVirtualMachineFromIntentToDeletion(t *testing.T) {
	v := newVirtHost(t)
	source := v.serveImage()
	plain, tls := v.serveOrigins()
	f := newFleet(t, "always")
	agent := f.startAgent("kvm-1", v.agent(source.URL))
	tlsPort := tls.Listener.Addr().String()[strings.LastIndex(tls.Listener.Addr().String(), ":")+1:]
	intent := func(name, desired string) string {
		doc := map[string]any{"name": name, "desired": desired, "spec": map[string]any{
			"auth":      map[string]string{"username": "crawler", "password": guestPassword},
			"egress":    map[string]any{"private": true, "connectPorts": []json.RawMessage{json.RawMessage(tlsPort)}},
			"cloudInit": guestUserData,
		}}
		text, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	began := time.Now()
	passed := func(what string) { t.Logf("%6.1fs %s", time.Since(began).Seconds(), what) }

	f.publish("crawl-1", intent("crawl-1", "running"))
	r := f.await("crawl-1", time.Minute, "bound", func(r bus.Record) bool { return r.UID != "" })
	domain := v.owns(r.UID)
	r = f.awaitPhase("crawl-1", bus.PhaseRunning, bootTime)
	passed("Running")
	if len(r.Addresses) == 0 || r.Addresses[0].Family != "ipv4" {
		t.Fatalf("Running without an address: %+v", r)
	}
	good := guestClient{t: t, address: r.Addresses[0], user: url.UserPassword("crawler", guestPassword), tls: tls}

	t.Run("it serves who may use it", func(t *testing.T) {
		good := good.in(t)
		for name, origin := range map[string]string{"plain": plain.URL, "TLS by CONNECT": tls.URL} {
			status, body := good.get(origin)
			if want := "hello " + r.Addresses[0].Address + ` via="" forwarded=""`; status != http.StatusOK || body != want {
				t.Errorf("%s: %d %q, want %q", name, status, body, want)
			}
		}
		var e bus.Endpoint
		if ok, err := f.get(f.names.Endpoints(), "_.crawl-1", &e); err != nil || !ok || !slices.Equal(e.Addresses, r.Addresses) {
			t.Errorf("endpoint %+v (%v, %v), want %v", e, ok, err, r.Addresses)
		}
	})
	t.Run("it refuses the others", func(t *testing.T) {
		good := good.in(t)
		for name, user := range map[string]*url.Userinfo{
			"nobody":           nil,
			"a wrong password": url.UserPassword("crawler", "wrong"),
			"another name":     url.UserPassword("crawler2", guestPassword),
		} {
			other := good
			other.user = user
			if status, body := other.get(plain.URL); status != http.StatusProxyAuthRequired {
				t.Errorf("%s: %d %s, want 407", name, status, body)
			}
		}
		closed := strings.Replace(plain.URL, "http:", "https:", 1) // not one of the intent's connectPorts
		if status, body := good.get(closed); status != http.StatusForbidden {
			t.Errorf("CONNECT to another port: %d %s, want 403", status, body)
		}
	})
	t.Run("cloud-init arrives", func(t *testing.T) {
		v := v.in(t)
		if got := v.guestFile(domain, "/var/lib/cloud/instance/user-data.txt"); got != guestUserData {
			t.Errorf("the guest has user-data %q, want %q", got, guestUserData)
		}
		for file, want := range map[string]string{"/etc/from-user": "by-the-user", "/etc/from-operator": "vendor"} {
			if got := v.guestFile(domain, file); got != want {
				t.Errorf("%s has %q, want %q", file, got, want)
			}
		}
		if known := v.virsh("domifaddr", domain, "--source", "agent"); !strings.Contains(known, r.Addresses[0].Address+"/") {
			t.Errorf("the guest agent knows other addresses than %v:\n%s", r.Addresses, known)
		}
	})

	t.Run("a second one has the same base", func(t *testing.T) {
		f := f.in(t)
		f.publish("crawl-2", intent("crawl-2", "running"))
		second := f.made("crawl-2")
		v.in(t).owns(second.UID)
		if n := source.downloads.Load(); n != 1 {
			t.Errorf("the image was downloaded %d times, want once", n)
		}
		f.publish("crawl-2", `{"name":"crawl-2","desired":"absent"}`)
		f.awaitNoTrace("crawl-2", time.Minute)
		if left := v.in(t).traces(second.UID); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
		if status, body := good.in(t).get(plain.URL); status != http.StatusOK {
			t.Errorf("the first one answers %d %s", status, body)
		}
	})

	f.publish("crawl-1", intent("crawl-1", "stopped"))
	stopped := f.awaitPhase("crawl-1", bus.PhaseStopped, 4*time.Minute)
	passed("Stopped")
	if i := slices.IndexFunc(stopped.Conditions, func(c bus.Condition) bool { return c.Type == "Instance" }); i < 0 ||
		stopped.Conditions[i].Reason != "Shutdown" {
		t.Errorf("conditions %+v, want an orderly Shutdown", stopped.Conditions)
	}
	if state := strings.TrimSpace(v.virsh("domstate", domain)); state != "shut off" {
		t.Errorf("the domain is %q", state)
	}
	eventually(t, 10*time.Second, func() error {
		var e bus.Endpoint
		ok, err := f.get(f.names.Endpoints(), "_.crawl-1", &e)
		if ok {
			return fmt.Errorf("a stopped proxy is an endpoint: %+v", e)
		}
		return err
	})

	f.publish("crawl-1", intent("crawl-1", "running"))
	again := f.awaitPhase("crawl-1", bus.PhaseRunning, bootTime)
	passed("Running again")
	if again.UID != r.UID || again.Generation <= r.Generation {
		t.Errorf("uid %s, generation %d; want %s, above %d", again.UID, again.Generation, r.UID, r.Generation)
	}
	good.address = again.Addresses[0]
	if status, body := good.get(plain.URL); status != http.StatusOK {
		t.Errorf("after it was stopped it answers %d %s", status, body)
	}
	if !strings.Contains(v.console(domain), "Squid Web Proxy Server") {
		t.Error("the console log does not tell of the boot")
	}

	f.publish("crawl-1", `{"name":"crawl-1","desired":"absent"}`)
	f.awaitNoTrace("crawl-1", 2*time.Minute)
	passed("gone")
	if left := v.traces(r.UID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	agent.stop()
	f.coordinator.stop()
	for _, p := range []*proc{agent, f.coordinator} {
		if strings.Contains(p.output(), guestPassword) || strings.Contains(p.output(), "by-the-user") {
			t.Errorf("%s logs a password or user-data", p.name)
		}
	}
}

// virtHost is this machine's own libvirtd as a host of a fleet, with a pool of the test's own.
type virtHost struct {
	t      testing.TB
	pool   string // name and last part of the path
	target string
	bridge string // address of this machine on the network "default"
}

func newVirtHost(t testing.TB) virtHost {
	t.Helper()
	v := virtHost{t: t, pool: fmt.Sprintf("pf-e2e-%d", os.Getpid())}
	// Where QEMU's user may look, unlike t.TempDir.
	v.target = filepath.Join("/var/lib/libvirt", v.pool)
	if err := os.Mkdir(v.target, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(v.target) })
	v.virsh("pool-create-as", v.pool, "dir", "--target", v.target)
	t.Cleanup(func() { _, _ = run(t, "virsh", "-q", "-c", "qemu:///system", "pool-destroy", v.pool) })
	_, rest, _ := strings.Cut(v.virsh("net-dumpxml", "default"), "<ip address='")
	v.bridge, _, _ = strings.Cut(rest, "'")
	return v
}

func (v virtHost) in(t testing.TB) virtHost { v.t = t; return v }

func (v virtHost) virsh(args ...string) string {
	v.t.Helper()
	return mustRun(v.t, "virsh", append([]string{"-q", "-c", "qemu:///system"}, args...)...)
}

// agent is an agent.yaml for the host, whose image comes from a URL.
func (v virtHost) agent(image string) string {
	return fmt.Sprintf(`backend: {type: libvirt, storagePool: %s}
images:
  debian: {url: '%s'}
machineTypes:
  small: {vcpus: 2, memoryMiB: 768}
defaults: {image: debian, machineType: small, diskGiB: 4}
limits: {overcommit: {vcpus: 8}}
vendorData: "#cloud-config\nwrite_files:\n  - {path: /etc/from-operator, content: vendor}\n"
`, v.pool, image)
}

// owns makes sure that an instance goes with the test, and shows its console when that has
// failed. It returns the domain's name.
func (v virtHost) owns(uid string) (domain string) {
	domain = backends.InstanceName(uid)
	v.t.Cleanup(func() {
		if v.t.Failed() {
			log := v.console(domain)
			v.t.Logf("---- end of the console of %s\n%s", domain, log[max(0, len(log)-6000):])
		}
		for _, args := range [][]string{{"destroy", domain}, {"undefine", "--nvram", domain}} {
			_, _ = run(v.t, "virsh", append([]string{"-q", "-c", "qemu:///system"}, args...)...)
		}
	})
	return domain
}

func (v virtHost) console(domain string) string {
	log, _ := os.ReadFile(filepath.Join(v.target, ".proxyfleet", domain+".log"))
	return string(log)
}

// traces are the domain and the files of an instance: disk, seed, marker, NVRAM, console.
func (v virtHost) traces(uid string) (found []string) {
	v.t.Helper()
	n := backends.InstanceName(uid)
	if slices.Contains(strings.Fields(v.virsh("list", "--all", "--name")), n) {
		found = append(found, "domain "+n)
	}
	for _, dir := range []string{v.target, "/var/lib/libvirt/qemu/nvram", "/var/lib/libvirt/images"} {
		_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
			if strings.Contains(filepath.Base(path), n) {
				found = append(found, path)
			}
			return nil
		})
	}
	return found
}

// guestFile reads a small file in a guest through its agent.
func (v virtHost) guestFile(domain, path string) string {
	v.t.Helper()
	ask := func(command string, args map[string]any, into any) {
		v.t.Helper()
		doc, err := json.Marshal(map[string]any{"execute": command, "arguments": args})
		if err != nil {
			v.t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(v.virsh("qemu-agent-command", domain, string(doc))), into); err != nil {
			v.t.Fatal(err)
		}
	}
	var opened struct {
		Return int `json:"return"`
	}
	ask("guest-file-open", map[string]any{"path": path}, &opened)
	var read struct {
		Return struct {
			Content string `json:"buf-b64"`
		} `json:"return"`
	}
	ask("guest-file-read", map[string]any{"handle": opened.Return}, &read)
	content, err := base64.StdEncoding.DecodeString(read.Return.Content)
	if err != nil {
		v.t.Fatal(err)
	}
	return string(content)
}

// imageSource serves the guest's image.
type imageSource struct {
	*httptest.Server
	downloads atomic.Int32 // GET requests
}

func (v virtHost) serveImage() *imageSource {
	v.t.Helper()
	path := tool(v.t, "PROXYFLEET_GUEST_IMAGE")
	s := &imageSource{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			s.downloads.Add(1)
		}
		http.ServeFile(w, r, path)
	}))
	v.t.Cleanup(s.Close)
	return s
}
