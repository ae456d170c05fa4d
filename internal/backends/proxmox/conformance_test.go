//go:build pve || proxmox_real

package proxmox

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/proxmox/pvefake"
)

func TestMain(m *testing.M) { backendtest.Main(m, suite()) }

func TestConformance(t *testing.T) { backendtest.Run(t, suite()) }

// hostText is what the suite hands from process to process: how to reach the cluster, which
// lives in the process that made it.
type hostText struct {
	URLs []string
	Dir  string // with the token, the CA and the state directories
}

// clusters are those of this process, by host.
var clusters sync.Map

func clusterOf(host string) *pvefake.Cluster {
	c, _ := clusters.Load(host)
	return c.(*pvefake.Cluster)
}

func dirOf(host string) string {
	var h hostText
	_ = json.Unmarshal([]byte(host), &h)
	return h.Dir
}

const token = "proxyfleet@pve!agent"

// newHost makes a cluster with two templates and a token.
func newHost(t testing.TB, o pvefake.Options) string {
	c := pvefake.New(t, o)
	secret := c.AddToken("proxyfleet@pve", "agent", pvefake.MinimalPrivileges(c.Version())...)
	c.AddVM(pvefake.VMSpec{ID: 9000, Name: "debian-13", Template: true, Storage: "shared"})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "token"), token+"="+secret+"\n")
	write(t, filepath.Join(dir, "ca.pem"), string(c.CAPEM()))
	c.RefreshStats()
	text, _ := json.Marshal(hostText{URLs: c.URLs(), Dir: dir})
	clusters.Store(string(text), c)
	return string(text)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func hostConfig() backends.HostConfig {
	return backends.HostConfig{
		Images:       map[string]backends.Image{"debian-13": {Template: "9000"}},
		MachineTypes: map[string]backends.MachineType{"small": {VCPUs: 1, MemoryMiB: 512}, "huge": {VCPUs: 1, MemoryMiB: 1 << 24}},
		Defaults:     backends.Defaults{Image: "debian-13", MachineType: "small", DiskGiB: 4},
	}
}

func config(host string) Config {
	var h hostText
	_ = json.Unmarshal([]byte(host), &h)
	return Config{URLs: h.URLs, TokenFile: filepath.Join(h.Dir, "token"), CA: filepath.Join(h.Dir, "ca.pem"),
		SeedStorage: "shared", Network: Network{Bridge: "vmbr0", VLAN: 7}, Tags: []string{"crawl"}, RequestTimeout: 3 * time.Second,
		LockTimeout: 300 * time.Millisecond, ShutdownTimeout: 20 * time.Second}
}

func open(host string, owner backends.Owner, log *slog.Logger) (*Backend, error) {
	return openWith(host, owner, log, config(host), hostConfig())
}

func openWith(host string, owner backends.Owner, log *slog.Logger, conf Config, hc backends.HostConfig) (*Backend, error) {
	return New(conf, hc, Options{Owner: owner, Log: log, StateDir: stateDir(host, owner), Poll: 20 * time.Millisecond})
}

func stateDir(host string, owner backends.Owner) string {
	return filepath.Join(dirOf(host), "state-"+owner.Installation+"-"+owner.HostID)
}

var harness = backendtest.Harness{
	NewHost: func(t testing.TB) string { return newHost(t, pvefake.Options{}) },
	Open: func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
		return open(host, owner, log)
	},
	Request: func(ref backends.Ref) backends.Request {
		return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, Image: "debian-13", MachineType: "small", DiskGiB: 4,
			Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, UserData: []byte("#cloud-config\n{}\n")}
	},
	Traces:   traces,
	Plants:   map[string]backendtest.Plant{"instance": plantVM},
	Oversize: func(req *backends.Request) { req.MachineType = "huge" },
	Unread: func(t testing.TB, host string, ref backends.Ref) func() {
		c := clusterOf(host)
		vm := mustVM(t, c, ref)
		c.OnRequest(func(r pvefake.Request) pvefake.Action {
			if strings.Contains(r.Path, fmt.Sprintf("/qemu/%d/", vm.ID)) {
				return pvefake.Action{Reply: &pvefake.Reply{Status: 596}}
			}
			return pvefake.Action{}
		})
		return func() { c.OnRequest(nil) }
	},
	Crash: func(t testing.TB, host string, ref backends.Ref) {
		c := clusterOf(host)
		c.SetRunning(mustVM(t, c, ref).ID, false)
	},
	Vanish: func(t testing.TB, host string, ref backends.Ref) {
		c := clusterOf(host)
		c.RemoveVM(mustVM(t, c, ref).ID)
	},
	Stall: func(t testing.TB, host string) func() {
		c := clusterOf(host)
		resume := make(chan struct{})
		c.OnRequest(func(pvefake.Request) pvefake.Action {
			return pvefake.Action{Before: func() { <-resume }}
		})
		return func() { c.OnRequest(nil); close(resume) }
	},
}

// vmOf finds a uid's VM behind the backend's back, also one that is being cloned.
func vmOf(c *pvefake.Cluster, ref backends.Ref) (pvefake.VM, bool) {
	for _, v := range c.VMs() {
		if v.Name == backends.InstanceName(ref.UID) {
			return v, true
		}
	}
	return pvefake.VM{}, false
}

func mustVM(t testing.TB, c *pvefake.Cluster, ref backends.Ref) pvefake.VM {
	t.Helper()
	v, ok := vmOf(c, ref)
	if !ok {
		t.Fatalf("there is no VM named %s", backends.InstanceName(ref.UID))
	}
	return v
}

func traces(t testing.TB, host string, ref backends.Ref) []string {
	var out []string
	c := clusterOf(host)
	ids := vmids(ref.UID, VMIDRange{Min: 100000, Max: 199999})
	for _, v := range c.VMs() {
		if v.Name == backends.InstanceName(ref.UID) || v.Config["lock"] == "clone" && slices.Contains(ids, v.ID) {
			out = append(out, fmt.Sprintf("VM %d", v.ID))
		}
	}
	seen := map[string]bool{}
	for _, node := range []string{"pve1", "pve2"} {
		for _, storage := range []string{"local", "shared"} {
			for _, v := range c.Volumes(node, storage) {
				if (strings.Contains(v, ref.UID) || strings.Contains(v, backends.InstanceName(ref.UID))) && !seen[storage+v] {
					seen[storage+v] = storage == "shared"
					out = append(out, node+" "+v)
				}
			}
		}
	}
	_ = filepath.WalkDir(dirOf(host), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, ref.UID) {
			out = append(out, filepath.Base(path))
		}
		return nil
	})
	return out
}

// plantVM puts a VM under the VMID and the name that a uid gives.
func plantVM(t testing.TB, host string, ref backends.Ref, m backends.Mark) func() string {
	c := clusterOf(host)
	id := vmid(ref.UID, 0, VMIDRange{Min: 100000, Max: 199999})
	spec := pvefake.VMSpec{ID: id, Name: backends.InstanceName(ref.UID), Storage: "shared", Config: map[string]string{}}
	if m != (backends.Mark{}) {
		spec.Config["description"] = describe(mark{Mark: m, Generation: 1, Port: DefaultPort}, "")
	}
	c.AddVM(spec)
	t.Cleanup(func() { c.RemoveVM(id) })
	return func() string {
		v, ok := c.VM(id)
		if !ok {
			return "gone"
		}
		text := fmt.Sprintf("%s running=%v", v.Name, v.Running)
		for _, k := range slices.Sorted(maps.Keys(v.Config)) {
			text += "\n" + k + "=" + v.Config[k]
		}
		return text
	}
}
