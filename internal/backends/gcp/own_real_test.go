//go:build real

package gcp

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/squid"
)

// guest is a machine whose script runs here: its metadata server and its files are elsewhere.
type guest struct {
	*testing.T
	script, list, reloads, path string
}

func newGuest(r *rig, zone, name, script string) *guest {
	r.Helper()
	metadata := httptest.NewServer(r.s.Metadata(zone, name))
	r.Cleanup(metadata.Close)
	dir := r.TempDir()
	g := &guest{T: r.T, script: filepath.Join(dir, "own-addresses.sh"), list: filepath.Join(dir, "own-addresses"), reloads: filepath.Join(dir, "reloads"),
		path: "PATH=" + dir + ":" + os.Getenv("PATH")}
	for _, text := range []string{"http://169.254.169.254", squid.DefaultOwnAddresses} {
		if !strings.Contains(script, text) {
			r.Fatalf("the script does not name %s:\n%s", text, script)
		}
	}
	write(r.T, g.script, strings.NewReplacer("http://169.254.169.254", metadata.URL, squid.DefaultOwnAddresses, g.list).Replace(script))
	write(r.T, filepath.Join(dir, "systemctl"), "#!/bin/sh\necho \"$*\" >>"+g.reloads+"\n")
	if err := os.Chmod(filepath.Join(dir, "systemctl"), 0o755); err != nil {
		r.Fatal(err)
	}
	return g
}

func (g *guest) command(args ...string) *exec.Cmd {
	c := exec.Command("/bin/sh", append([]string{g.script}, args...)...)
	c.Env = []string{g.path}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func (g *guest) addresses() []string {
	b, _ := os.ReadFile(g.list)
	return strings.Fields(string(b))
}

func (g *guest) await(what string, ok func() bool) {
	g.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			g.Fatalf("%s does not come about; the list is %v", what, g.addresses())
		}
	}
}

// What an instance's script writes is what Squid takes, at its start and whenever it changes.
func TestAGuestRefusesItsOwnAddressesAsDestinations(t *testing.T) {
	r := newRig(t, func(c *Config, _ *backends.HostConfig) { c.IPv6, c.Network, c.Subnetwork = true, "dual", "dual" })
	r.s.AddNetwork("dual", "IPV4_IPV6", "EXTERNAL")
	_, i := r.mustEnsure(r.request())
	key := "projects/" + r.s.Project() + "/zones/" + i.Zone + "/instances/" + i.Name
	nic := func(change func(map[string]any)) {
		r.s.Edit(key, func(doc map[string]any) { change(doc["networkInterfaces"].([]any)[0].(map[string]any)) })
	}
	nic(func(nic map[string]any) { nic["aliasIpRanges"] = []any{map[string]any{"ipCidrRange": "10.9.8.0/24"}} })
	g := newGuest(r, i.Zone, i.Name, guestFiles(t, i)["/etc/squid/own-addresses.sh"])
	if out, err := g.command().CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{i.ExternalIP, i.InternalIP, i.IPv6, "10.9.8.0/24"} {
		if want == "" || !slices.Contains(g.addresses(), want) {
			t.Errorf("%q is not in %v", want, g.addresses())
		}
	}
	if slices.Contains(g.addresses(), "42:01:0a:80:00:02") {
		t.Errorf("a hardware address is in %v", g.addresses())
	}
	conf := filepath.Join(t.TempDir(), "squid.conf")
	write(t, conf, "http_port 3128\nacl own dst \""+g.list+"\"\nhttp_access deny own\n")
	if out, err := exec.Command("squid", "-k", "parse", "-f", conf).CombinedOutput(); err != nil || strings.Contains(string(out), "ERROR") {
		t.Errorf("Squid does not take the list: %v\n%s", err, out)
	}

	follow := g.command("follow")
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-follow.Process.Pid, syscall.SIGKILL)
		_ = follow.Wait()
	})
	for _, ip := range []string{"203.0.113.7", "203.0.113.8"} {
		time.Sleep(time.Second) // it is waiting by then; one that is missed it sees a minute later
		nic(func(nic map[string]any) { nic["accessConfigs"].([]any)[0].(map[string]any)["natIP"] = ip })
		g.await("the new address "+ip, func() bool { return slices.Contains(g.addresses(), ip) })
	}
	if slices.Contains(g.addresses(), i.ExternalIP) {
		t.Errorf("the old address is still in %v", g.addresses())
	}
	g.await("two reloads", func() bool {
		b, _ := os.ReadFile(g.reloads)
		return string(b) == "try-reload-or-restart squid\ntry-reload-or-restart squid\n"
	})
}

func TestAGuestWhoseMetadataServerIsSilentDoesNotStartSquid(t *testing.T) {
	r := newRig(t)
	_, i := r.mustEnsure(r.request())
	g := newGuest(r, i.Zone, i.Name, strings.ReplaceAll(guestFiles(t, i)["/etc/squid/own-addresses.sh"], "Metadata-Flavor: Google", "X: y"))
	out, err := g.command().CombinedOutput()
	if err == nil || !strings.Contains(string(out), "does not tell this machine's addresses") {
		t.Errorf("got %v\n%s", err, out)
	}
	if _, err := os.Stat(g.list); err == nil {
		t.Error("there is a list, by which Squid would start")
	}
}
