//go:build real

package libvirt

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

func TestMain(m *testing.M) { backendtest.Main(m, harness) }

func TestConformance(t *testing.T) {
	d := startDaemon(t)
	h := harness
	h.NewHost = func(testing.TB) string { return d.Dir }
	backendtest.Run(t, h)
}

// TestConformanceThroughVolumes has the suite look at a pool whose files the agent does not
// use, as those of other machines.
func TestConformanceThroughVolumes(t *testing.T) {
	d := startDaemon(t).throughVolumes()
	h := harness
	h.NewHost = func(testing.TB) string { return d.named() }
	backendtest.Run(t, h)
	markers, err := filepath.Glob(filepath.Join(d.PoolDir(), "pf-*.json"))
	must(t, err)
	for _, path := range markers {
		if unfilled(path) {
			t.Errorf("left: %s", path)
		}
	}
}

// unfilled reports whether a marker was made and not written. Through volumes that takes two
// calls, and one that was cut off in between says of no uid: no listing has it. It goes with
// Tidy, or the next create or delete of its uid, which the end of the suite looks at.
func unfilled(path string) bool {
	data, err := os.ReadFile(path)
	return err == nil && strings.HasSuffix(path, ".json") && len(bytes.Trim(data, "\x00")) == 0
}

// openAt opens a backend on a daemon, with room for small guests.
func openAt(d daemon, owner backends.Owner, log *slog.Logger) (*Backend, error) {
	return openWith(d, Config{URI: d.URI(), VirtType: "qemu"}, owner, log)
}

func openWith(d daemon, cfg Config, owner backends.Owner, log *slog.Logger) (*Backend, error) {
	host := backends.HostConfig{
		Images: map[string]backends.Image{
			"empty": {File: d.Image(), Firmware: "bios"},
			"uefi":  {File: d.Image()},
		},
		MachineTypes: map[string]backends.MachineType{"small": {VCPUs: 1, MemoryMiB: 64}, "large": {VCPUs: 2, MemoryMiB: 96}},
		Defaults:     backends.Defaults{Image: "empty", MachineType: "small", DiskGiB: 1},
	}
	host.Limits.Overcommit.VCPUs = 100
	if d.volumes {
		cfg.StorageAccess = "volumes"
	}
	return New(cfg, host, Options{Owner: owner, Log: log, ShutdownGrace: 300 * time.Millisecond, StateDir: d.Dir + "/agent"})
}

func request(ref backends.Ref) backends.Request {
	return backends.Request{Ref: ref, Generation: 1, Desired: backends.Running, DiskGiB: 1, Image: "empty", MachineType: "small",
		Access: backends.Access{AllowFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
}

var harness = backendtest.Harness{
	NewHost: func(testing.TB) string { panic("TestConformance gives its own") },
	Open: func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
		d := daemonAt(host)
		b, err := openAt(d, owner, log)
		if err != nil || !d.volumes {
			return b, err
		}
		// There each owner has bases of its own, and making one is no step of every create.
		_, err = b.PullImage(context.Background(), "empty", nil)
		return b, err
	},
	Request: request,
	Traces: func(t testing.TB, host string, ref backends.Ref) []string {
		d := daemonAt(host)
		return slices.DeleteFunc(d.Traces(t, ref.UID), func(path string) bool { return d.volumes && unfilled(path) })
	},
	Plants: map[string]backendtest.Plant{
		"instance": func(t testing.TB, host string, ref backends.Ref, mark backends.Mark) func() string {
			return daemonAt(host).foreignDomain(t, ref, mark)
		},
		"volume": func(t testing.TB, host string, ref backends.Ref, mark backends.Mark) func() string {
			return daemonAt(host).foreignVolume(t, ref, mark)
		},
	},
	Oversize: func(req *backends.Request) { req.DiskGiB = 1 << 20 },
	Unread: func(t testing.TB, host string, ref backends.Ref) func() {
		d, n := daemonAt(host), backends.InstanceName(ref.UID)
		whole := d.Virsh(t, "metadata", n, markNamespace)
		d.Virsh(t, "metadata", n, markNamespace, "--key", markPrefix, "--set", "<instance uid='cut'/>", "--live", "--config")
		return func() {
			d.Virsh(t, "metadata", n, markNamespace, "--key", markPrefix, "--set", whole, "--live", "--config")
		}
	},
	Crash: func(t testing.TB, host string, ref backends.Ref) {
		d, n := daemonAt(host), backends.InstanceName(ref.UID)
		must(t, syscall.Kill(libvirttest.GuestPID(t, n), syscall.SIGKILL))
		for d.Virsh(t, "domstate", n) == "running\n" {
			time.Sleep(20 * time.Millisecond)
		}
	},
	Vanish: func(t testing.TB, host string, ref backends.Ref) {
		d, n := daemonAt(host), backends.InstanceName(ref.UID)
		d.Virsh(t, "destroy", n)
		d.Virsh(t, "undefine", n, "--nvram")
	},
	Stall: func(t testing.TB, host string) func() {
		d := daemonAt(host)
		d.Signal(t, syscall.SIGSTOP)
		return func() { d.Signal(t, syscall.SIGCONT) }
	},
	Changes: map[backends.Field]func(*backends.Request){
		backends.FieldMachineType: func(r *backends.Request) { r.MachineType = "large" },
		backends.FieldDiskGiB:     func(r *backends.Request) { r.DiskGiB++ },
	},
	Patience: 30 * time.Second,
}
