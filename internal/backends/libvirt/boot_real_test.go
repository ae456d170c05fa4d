//go:build real

package libvirt

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/libvirt/libvirttest"
)

// Boot sectors that do to their guest what a kernel may do. SeaBIOS loads them at 0x7c00, with
// the disk's number in DL.
var (
	// writesABit writes 256 times 32 KiB to its disk, one after the other, and is at rest then.
	writesABit = sector(packet{sectors: 64, segment: 0x1000, first: 2048},
		0x31, 0xc0, 0x8e, 0xd8, // xor ax, ax; mov ds, ax
		0xb9, 0x00, 0x01, // mov cx, 256
		0xb8, 0x00, 0x43, 0xbe, 0x40, 0x7c, 0xcd, 0x13, // again: mov ax, 0x4300; mov si, packet; int 0x13
		0x66, 0x83, 0x06, 0x48, 0x7c, 0x40, // add dword [packet+8], 64
		0xe2, 0xf0, // loop again
	)
	// sleeps asks for S3 by the PM1a control register, where SeaBIOS puts it on q35.
	sleeps = once(0xba, 0x04, 0x06, 0xb8, 0x00, 0x24, 0xef) // mov dx, 0x604; mov ax, 0x2400; out dx, ax
	// panics tells the pvpanic device so, as a kernel of Linux does.
	panics = once(0xba, 0x05, 0x05, 0xb0, 0x01, 0xee) // mov dx, 0x505; mov al, 1; out dx, al
)

// packet is what extended INT 13h, AH=43h, writes from memory to the disk.
type packet struct {
	sectors, offset, segment uint16
	first                    uint64
}

// sector is code that is at rest at its end, with a packet at 0x7c40.
func sector(p packet, code ...byte) []byte {
	s := append(code, 0xf4, 0xeb, 0xfd) // rest: hlt; jmp rest
	s = append(s, make([]byte, 0x40-len(s))...)
	s = append(s, 16, 0)
	for _, n := range []uint16{p.sectors, p.offset, p.segment} {
		s = binary.LittleEndian.AppendUint16(s, n)
	}
	s = binary.LittleEndian.AppendUint64(s, p.first)
	return append(append(s, make([]byte, 510-len(s))...), 0x55, 0xaa)
}

// once does something the first time that a disk is booted: before it, the sector is made one
// that is only at rest.
func once(code ...byte) []byte {
	return sector(packet{sectors: 1, offset: 0x7c00}, append([]byte{
		0x31, 0xc0, 0x8e, 0xd8, // xor ax, ax; mov ds, ax
		0xc7, 0x06, 0x00, 0x7c, 0xf4, 0xeb, // mov word [0x7c00], 0xebf4
		0xc6, 0x06, 0x02, 0x7c, 0xfd, // mov byte [0x7c02], 0xfd
		0xb8, 0x00, 0x43, 0xbe, 0x40, 0x7c, 0xcd, 0x13, // mov ax, 0x4300; mov si, packet; int 0x13
	}, code...)...)
}

// boots makes the daemon's image one whose guests run a boot sector.
func (d daemon) boots(t testing.TB, sector []byte) {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "raw")
	must(t, os.WriteFile(raw, append(sector, make([]byte, 1<<20-len(sector))...), 0o600))
	libvirttest.QemuImg(t, "convert", "-q", "-f", "raw", "-O", "qcow2", raw, d.Image())
}

// becomes waits for a state of a guest.
func (h host) becomes(t testing.TB, ref backends.Ref, status backends.Status, reason string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		i := h.get(t, ref)
		if i.Status == status && i.Reason == reason {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is %s (%s), want %s (%s)", i.Status, i.Reason, status, reason)
		}
	}
}

func TestAGuestWhoseDiskHasNoRoomLeftIsPausedAndGoesOnWhenItHas(t *testing.T) {
	d := startSmallDaemon(t, "16m")
	d.boots(t, writesABit)
	h := hostOn(t, d)
	h.host.Limits.Overcommit.Disk = 100_000
	filler := filepath.Join(d.PoolDir(), "filler")
	f, err := os.Create(filler)
	must(t, err)
	must(t, unix.Fallocate(int(f.Fd()), 0, 0, 12<<20))
	must(t, f.Close())
	req := request(newRef())
	h.ensure(t, req)
	h.becomes(t, req.Ref, backends.StatusPaused, "IOError")
	h.ensure(t, req) // resumed, in vain
	h.becomes(t, req.Ref, backends.StatusPaused, "IOError")
	must(t, os.Remove(filler))
	h.ensure(t, req)
	id := h.Virsh(t, "domid", backends.InstanceName(req.UID))
	for allocated(h.place().disk(backends.InstanceName(req.UID))) < 8<<20 {
		h.becomes(t, req.Ref, backends.StatusRunning, "")
		time.Sleep(100 * time.Millisecond)
	}
	if now := h.Virsh(t, "domid", backends.InstanceName(req.UID)); now != id {
		t.Error("it was started anew")
	}
	h.delete(t, req.Ref)
}

func TestAGuestThatSleepsIsToldAndWoken(t *testing.T) {
	h := startHost(t)
	h.boots(t, sleeps)
	req := request(newRef())
	h.ensure(t, req)
	h.becomes(t, req.Ref, backends.StatusPaused, "Suspended")
	id := h.Virsh(t, "domid", backends.InstanceName(req.UID))
	if i := h.ensure(t, req); i.Status != backends.StatusRunning {
		t.Errorf("woken: %+v", i)
	}
	if now := h.Virsh(t, "domid", backends.InstanceName(req.UID)); now != id {
		t.Error("it was started anew")
	}
	h.delete(t, req.Ref)
}

func TestAGuestWhoseKernelGivesUpIsToldAndStartedAgain(t *testing.T) {
	h := startHost(t)
	h.boots(t, panics)
	req := request(newRef())
	h.ensure(t, req)
	h.becomes(t, req.Ref, backends.StatusCrashed, "Crashed")
	if log := h.Virsh(t, "domstate", "--reason", backends.InstanceName(req.UID)); !strings.Contains(log, "crashed") {
		t.Errorf("got %s", log)
	}
	if i := h.ensure(t, req); i.Status != backends.StatusRunning {
		t.Errorf("started again: %+v", i)
	}
	h.delete(t, req.Ref)
}
