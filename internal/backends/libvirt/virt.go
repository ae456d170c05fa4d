package libvirt

import (
	"errors"
	"io/fs"
	"os"

	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
)

// Architecture and machine of every guest.
const (
	guestArch    = "x86_64"
	guestMachine = "q35"
)

// kvmCreateVM is the ioctl that makes a virtual machine; closing its file descriptor ends
// it again. Source: include/uapi/linux/kvm.h.
const kvmCreateVM = 0xae01

// kvmWorks tries KVM out: the device may exist and still be refused, which libvirt's own
// capabilities do not tell.
func kvmWorks(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no " + device + ": the processor's virtualisation is switched off, or the module is not loaded")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	vm, err := unix.IoctlRetInt(int(f.Fd()), kvmCreateVM)
	if err != nil {
		return os.NewSyscallError("KVM_CREATE_VM on "+device, err)
	}
	return unix.Close(vm)
}

// virt is the way in which guests run here.
type virt struct {
	kind   string // "kvm" or "qemu"
	cpu    string // libvirt's CPU mode
	whyNot error  // why it is not kvm, where auto fell back
}

// virt finds out which virtualisation really works.
func (b *Backend) virt(s *session) (virt, error) {
	const op = "find virtualisation"
	var v virt
	if b.cfg.VirtType != "qemu" {
		v.kind = "kvm"
		if !b.cfg.Remote() { // of another host libvirt's word is all there is
			v.whyNot = b.tryKVM("/dev/kvm")
		}
		if v.whyNot == nil {
			v.whyNot = supports(s, "kvm")
			if errors.Is(v.whyNot, backends.ErrTransient) {
				return virt{}, v.whyNot
			}
		}
		if v.whyNot != nil && b.cfg.VirtType == "kvm" {
			return virt{}, backends.Wrap(backends.ErrHostFault, op, v.whyNot, "KVM does not work on this host; mend it, or set virtType to qemu for slow guests")
		}
	}
	if v.kind == "" || v.whyNot != nil {
		v.kind = "qemu"
		err := supports(s, "qemu")
		if errors.Is(err, backends.ErrTransient) {
			return virt{}, err
		}
		if err != nil {
			return virt{}, backends.Wrap(backends.ErrHostFault, op, err, "this host runs no %s guests; install QEMU's system emulator", guestArch)
		}
	}
	v.cpu = b.cfg.CPUMode
	switch {
	case v.cpu == "" && v.kind == "kvm":
		v.cpu = "host-model"
	case v.cpu == "" || v.cpu == "host-passthrough" && v.kind == "qemu":
		v.cpu = "maximum"
	}
	return v, nil
}

// supports asks libvirt whether it can make such guests.
func supports(s *session, kind string) error {
	_, err := read(s, "domain capabilities", func(l *golibvirt.Libvirt) (string, error) {
		return l.ConnectGetDomainCapabilities(nil, golibvirt.OptString{guestArch}, golibvirt.OptString{guestMachine}, golibvirt.OptString{kind}, 0)
	})
	return err
}
