//go:build real

package libvirt

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

// daemon is a libvirtd of a test's own, with what others may have put into it.
type daemon struct {
	libvirttest.Daemon
	volumes bool // backends work the pool through volumes
}

func startDaemon(t testing.TB) daemon { return daemon{Daemon: libvirttest.Start(t)} }

func startSmallDaemon(t testing.TB, size string) daemon {
	return daemon{Daemon: libvirttest.StartSmall(t, size)}
}

func (d daemon) throughVolumes() daemon {
	d.volumes = true
	return d
}

// named names the daemon, for other processes too.
func (d daemon) named() string {
	if d.volumes {
		return "volumes:" + d.Dir
	}
	return d.Dir
}

// daemonAt is the one that host names.
func daemonAt(host string) daemon {
	dir, volumes := strings.CutPrefix(host, "volumes:")
	return daemon{Daemon: libvirttest.Daemon{Dir: dir}, volumes: volumes}
}

func (d daemon) place() place { return place{dir: d.PoolDir()} }

// foreignDomain defines a domain that the backend did not make, with a mark where there is
// one.
func (d daemon) foreignDomain(t testing.TB, ref backends.Ref, mark backends.Mark) (look func() string) {
	t.Helper()
	n := backends.InstanceName(ref.UID)
	metadata := ""
	if mark.UID != "" {
		metadata = "<metadata>" + domainMark{Mark: mark, Generation: 1, Port: 3128}.element() + "</metadata>"
	}
	d.Define(t, "<domain type='qemu'><name>"+n+"</name>"+metadata+
		"<memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>")
	t.Cleanup(func() { _, _ = d.TryVirsh("undefine", n) })
	return func() string {
		out, err := d.TryVirsh("dumpxml", n)
		return fmt.Sprint(out, err)
	}
}

// foreignVolume puts a file under the disk's name, and a marker where there is a mark.
func (d daemon) foreignVolume(t testing.TB, ref backends.Ref, mark backends.Mark) (look func() string) {
	t.Helper()
	if d.volumes {
		return d.foreignUpload(t, ref, mark)
	}
	n, p := backends.InstanceName(ref.UID), d.place()
	must(t, os.WriteFile(p.disk(n), []byte("somebody's"), 0o600))
	t.Cleanup(func() { _ = os.Remove(p.disk(n)) })
	if mark.UID != "" {
		must(t, os.MkdirAll(p.state(), 0o711))
		m := marker{Installation: mark.Installation, HostID: mark.HostID, Proxy: mark.Proxy, UID: mark.UID, CreatedAt: mark.CreatedAt}
		must(t, replace(p.marker(n), m.text()))
		t.Cleanup(func() { _ = os.Remove(p.marker(n)) })
	}
	return func() string {
		a, err1 := os.ReadFile(p.disk(n))
		b, _ := os.ReadFile(p.marker(n))
		return fmt.Sprint(string(a), err1, string(b))
	}
}

// foreignUpload is foreignVolume for backends that see volumes.
func (d daemon) foreignUpload(t testing.TB, ref backends.Ref, mark backends.Mark) (look func() string) {
	t.Helper()
	n := backends.InstanceName(ref.UID)
	put := func(name, content string) {
		file := filepath.Join(t.TempDir(), "content")
		must(t, os.WriteFile(file, []byte(content), 0o600))
		d.Virsh(t, "vol-create-as", "default", name, strconv.Itoa(len(content)), "--format", "raw")
		d.Virsh(t, "vol-upload", "--pool", "default", name, file)
		t.Cleanup(func() { _, _ = d.TryVirsh("vol-delete", "--pool", "default", name) })
	}
	put(n+".qcow2", "somebody's")
	if mark.UID != "" {
		m := marker{Installation: mark.Installation, HostID: mark.HostID, Proxy: mark.Proxy, UID: mark.UID, CreatedAt: mark.CreatedAt}
		put(markerName(n, backends.Owner{Installation: mark.Installation, HostID: mark.HostID}), string(record(m.text())))
	}
	return func() string {
		a, err1 := os.ReadFile(d.PoolDir() + "/" + n + ".qcow2")
		b, _ := os.ReadFile(d.PoolDir() + "/" + markerName(n, backends.Owner{Installation: mark.Installation, HostID: mark.HostID}))
		return fmt.Sprint(string(a), err1, string(b))
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openBase is the base that the disk of req was made on.
func openBase(t testing.TB, h host, req backends.Request) (images.Base, error) {
	t.Helper()
	m, _, err := h.place().readMarker(backends.InstanceName(req.UID))
	must(t, err)
	return images.Find(h.PoolDir(), m.Base, m.BaseFormat)
}
