//go:build real

package libvirt

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"
	"go.uber.org/goleak"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

// interrupted is a reader that does something once, in the middle.
type interrupted struct {
	io.Reader
	left int // bytes until then
	do   func()
}

func (r *interrupted) Read(p []byte) (int, error) {
	if r.left <= 0 && r.do != nil {
		r.do()
		r.do = nil
	}
	n, err := r.Reader.Read(p)
	r.left -= n
	return n, err
}

func TestADaemonThatDiesInTheMiddleOfAnUploadLeavesNothingBehind(t *testing.T) {
	d, sshd := startDaemon(t), libvirttest.StartSSHD(t)
	const size = 48 << 20
	content := filepath.Join(t.TempDir(), "content")
	must(t, os.WriteFile(content, nil, 0o600))
	must(t, os.Truncate(content, size))
	for way, cfg := range map[string]Config{"by its socket": {URI: d.URI(), VirtType: "qemu"}, "through SSH": throughSSH(d, sshd)} {
		t.Run(way, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			h := remoteHost(t, d, cfg)
			s, err := h.open(t.Context())
			must(t, err)
			vol, err := read(s, "make volume", func(l *golibvirt.Libvirt) (golibvirt.StorageVol, error) {
				pool, err := l.StoragePoolLookupByName("default")
				if err != nil {
					return golibvirt.StorageVol{}, err
				}
				return l.StorageVolCreateXML(pool, "<volume><name>upload</name><capacity unit='MiB'>48</capacity><target><format type='raw'/></target></volume>", 0)
			})
			must(t, err)
			file, err := os.Open(content)
			must(t, err)
			defer func() { _ = file.Close() }()
			var up func()
			began := time.Now()
			err = s.write("volume.upload", "upload", func(l *golibvirt.Libvirt) error {
				return l.StorageVolUpload(vol, &interrupted{file, size / 3, func() { up = d.Down(t) }}, 0, size, 0)
			})
			wantClass(t, err, backends.ErrTransient)
			if took := time.Since(began); took > writeBudget/2 {
				t.Errorf("it took %s to notice", took)
			}
			s.close()
			must(t, h.Close())
			goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("proxyfleet/internal/backends/libvirt/libvirttest.StartSSHD.func1"),
				goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait"))
			up()
			d.Virsh(t, "vol-delete", "--pool", "default", "upload")
		})
	}
}

func TestAWatcherThatEndsLeavesNothingBehind(t *testing.T) {
	d := startDaemon(t)
	for what, end := range map[string]func(host, func()){
		"its context ends":      func(_ host, cancel func()) { cancel() },
		"the daemon dies first": func(h host, cancel func()) { up := h.Down(t); up(); cancel() },
	} {
		t.Run(what, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			h := remoteHost(t, d, Config{URI: d.URI(), VirtType: "qemu"})
			ctx, cancel := context.WithCancel(t.Context())
			events := h.Watch(ctx)
			awaitConnected(t, events)
			end(h, cancel)
			for range events {
			}
			must(t, h.Close())
			goleak.VerifyNone(t, before)
		})
	}
}

func TestAWatcherAsksForASignOfLifeWhenNothingHappens(t *testing.T) {
	d := startDaemon(t)
	counter := d.CountCalls(t)
	h := remoteHost(t, d, Config{URI: "qemu:///system?socket=" + counter.Socket, VirtType: "qemu"})
	h.signOfLife = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	awaitConnected(t, h.Watch(ctx))
	counter.Calls()
	deadline := time.Now().Add(20 * time.Second)
	for n := 0; n < 3; n += counter.Calls() {
		if time.Now().After(deadline) {
			t.Fatalf("%d calls were made, want one each %s", n, h.signOfLife)
		}
		time.Sleep(h.signOfLife)
	}
}
