//go:build proxmox_real

package proxmox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/proxmox/pve"
)

// suite is the conformance suite on a real cluster, which the environment names; see
// docs/proxmox.md. Cases share the cluster and remove what they made.
func suite() backendtest.Harness {
	return backendtest.Harness{
		NewHost: func(t testing.TB) string { return t.TempDir() },
		Open: func(dir string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
			return openReal(dir, owner, log)
		},
		Request: func(ref backends.Ref) backends.Request {
			return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, Image: "test", MachineType: "small", DiskGiB: number("DISK_GIB", 0),
				Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
		},
		Traces:     realTraces,
		Plants:     map[string]backendtest.Plant{"instance": plantReal},
		Oversize:   func(req *backends.Request) { req.MachineType = "huge" },
		Crash:      func(t testing.TB, _ string, ref backends.Ref) { power(t, ref, (*pve.Client).Stop) },
		Vanish:     func(t testing.TB, _ string, ref backends.Ref) { removeReal(t, ref) },
		Patience:   10 * time.Minute,
		Promptness: 35 * time.Second, // of a request that is on its way
		Differs: map[backendtest.Difference]string{
			backendtest.DiffersUnread: "nothing can make a real VM unreadable from outside",
			backendtest.DiffersStall:  "nothing can make a real cluster hang from outside",
		},
	}
}

func setting(name string) string { return os.Getenv("PROXMOX_TEST_" + name) }

func number(name string, def int) int {
	if n, err := strconv.Atoi(setting(name)); err == nil {
		return n
	}
	return def
}

func realConfig() Config {
	c := Config{URLs: strings.Split(setting("URLS"), ","), TokenFile: setting("TOKEN_FILE"), CA: setting("CA"), Fingerprint: setting("FINGERPRINT"),
		SeedStorage: setting("SEED_STORAGE"), Storage: setting("STORAGE"), CloneMode: setting("CLONE_MODE"),
		Network:   Network{Bridge: setting("BRIDGE"), VLAN: number("VLAN", 0)},
		VMIDRange: VMIDRange{Min: number("VMID_MIN", 990000), Max: number("VMID_MAX", 990999)}}
	if nodes := setting("NODES"); nodes != "" {
		c.Nodes = strings.Split(nodes, ",")
	}
	return c
}

func openReal(dir string, owner backends.Owner, log *slog.Logger) (*Backend, error) {
	for _, name := range []string{"URLS", "TOKEN_FILE", "SEED_STORAGE", "TEMPLATE"} {
		if setting(name) == "" {
			return nil, errors.New("PROXMOX_TEST_" + name + " is not set; see docs/proxmox.md")
		}
	}
	return New(realConfig(), backends.HostConfig{
		Images:       map[string]backends.Image{"test": {Template: setting("TEMPLATE")}},
		MachineTypes: map[string]backends.MachineType{"small": {VCPUs: 1, MemoryMiB: number("MEMORY_MIB", 512)}, "huge": {VCPUs: 1, MemoryMiB: 1 << 24}},
		Defaults:     backends.Defaults{Image: "test", MachineType: "small"},
	}, Options{Owner: owner, Log: log, StateDir: filepath.Join(dir, owner.Installation+"-"+owner.HostID)})
}

// behind is a client that looks at the cluster behind the backend's back.
func behind(t testing.TB) *pve.Client {
	t.Helper()
	c := realConfig()
	api, err := pve.New(pve.Config{URLs: c.URLs, TokenFile: c.TokenFile, CA: c.CA, Fingerprint: c.Fingerprint})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func resources(t testing.TB, api *pve.Client) pve.Resources {
	t.Helper()
	r, err := api.Resources(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// realVMs are the VMs of a uid. Names are late in listings, so configurations are read.
func realVMs(t testing.TB, api *pve.Client, uid string) []pve.VM {
	t.Helper()
	ids := vmids(uid, realConfig().VMIDRange)
	var out []pve.VM
	for _, v := range resources(t, api).VMs {
		if v.Type != "qemu" || v.Name != backends.InstanceName(uid) && !slices.Contains(ids, v.ID) {
			continue
		}
		conf, err := api.Config(context.Background(), v.Node, v.ID, false)
		if pve.IsNoVM(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if conf["name"] == backends.InstanceName(uid) || conf["name"] == "" && isMaking(conf["lock"]) {
			out = append(out, v)
		}
	}
	return out
}

func realTraces(t testing.TB, dir string, ref backends.Ref) []string {
	api := behind(t)
	defer api.Close()
	var out []string
	for _, v := range realVMs(t, api, ref.UID) {
		out = append(out, fmt.Sprintf("VM %d", v.ID))
	}
	seen := map[string]bool{}
	for _, s := range resources(t, api).Storages {
		if s.Name != realConfig().SeedStorage || !s.Available || s.Shared && seen[s.Name] {
			continue
		}
		seen[s.Name] = true
		volumes, err := api.Volumes(context.Background(), s.Node, s.Name, "iso", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range volumes {
			if strings.Contains(v.ID, ref.UID) {
				out = append(out, s.Node+" "+v.ID)
			}
		}
	}
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, ref.UID) {
			out = append(out, filepath.Base(path))
		}
		return nil
	})
	return out
}

// power calls verb for the VM of ref, and waits for its task.
func power(t testing.TB, ref backends.Ref, verb func(*pve.Client, context.Context, string, int) (pve.UPID, error)) {
	t.Helper()
	api := behind(t)
	defer api.Close()
	for _, v := range realVMs(t, api, ref.UID) {
		task, err := verb(api, context.Background(), v.Node, v.ID)
		if err == nil {
			_, err = api.Follow(context.Background(), task)
		}
		if err != nil {
			t.Errorf("VM %d: %v", v.ID, err)
		}
	}
}

func removeReal(t testing.TB, ref backends.Ref) {
	power(t, ref, (*pve.Client).Stop)
	power(t, ref, (*pve.Client).Destroy)
}

// plantReal clones the template to the VMID and the name that a uid gives.
func plantReal(t testing.TB, _ string, ref backends.Ref, m backends.Mark) func() string {
	api := behind(t)
	t.Cleanup(api.Close)
	templates := named(newSnapshot(time.Now(), resources(t, api)), setting("TEMPLATE"))
	if len(templates) == 0 {
		t.Fatalf("there is no template %s", setting("TEMPLATE"))
	}
	o := pve.CloneOptions{ID: vmid(ref.UID, 0, realConfig().VMIDRange), Name: backends.InstanceName(ref.UID)}
	if m != (backends.Mark{}) {
		o.Description = describe(mark{Mark: m, Generation: 1, Port: DefaultPort}, "")
	}
	task, err := api.Clone(context.Background(), templates[0].Node, templates[0].ID, o)
	if err == nil {
		_, err = api.Follow(context.Background(), task)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeReal(t, ref) })
	return func() string {
		conf, err := api.Config(context.Background(), templates[0].Node, o.ID, false)
		if err != nil {
			return "gone: " + err.Error()
		}
		var text strings.Builder
		for _, k := range slices.Sorted(maps.Keys(conf)) {
			text.WriteString(k + "=" + conf[k] + "\n")
		}
		return text.String()
	}
}
