package libvirttest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed lvm.sh
var lvmScript string

// StartLVM is Start with a pool "default" of type logical, of 40 GiB. libvirt, its volumes and
// what is in them are real; LVM's programs are not: they make a loop device for each
// volume, so that a kernel without device mapper will do.
func StartLVM(t testing.TB) Daemon {
	t.Helper()
	d := start(t, func(d Daemon) {
		must(t, os.MkdirAll(d.path("sbin"), 0o755))
		must(t, os.MkdirAll(d.path("lvm"), 0o700))
		text := strings.Replace(lvmScript, "set -eu", "LVMDIR="+d.path("lvm")+"\nLVMGROUP="+d.group()+"\nset -eu", 1)
		for _, name := range []string{"pvs", "vgs", "vgchange", "vgscan", "lvs", "lvcreate", "lvchange", "lvremove"} {
			must(t, os.WriteFile(d.path("sbin/"+name), []byte(text), 0o755)) //nolint:gosec // programs
		}
		t.Cleanup(func() { d.removeLVM() })
	})
	d.Virsh(t, "pool-destroy", "default")
	d.Virsh(t, "pool-undefine", "default")
	d.Virsh(t, "pool-define-as", "default", "logical", "--source-name", d.group())
	d.Virsh(t, "pool-start", "default")
	return d
}

// group is the name of the volume group, whose directory in /dev everybody sees.
func (d Daemon) group() string { return filepath.Base(d.Dir) }

func (d Daemon) removeLVM() {
	links, _ := filepath.Glob("/dev/" + d.group() + "/*")
	for _, link := range links {
		if device, err := os.Readlink(link); err == nil {
			_ = exec.Command("losetup", "-d", device).Run()
		}
	}
	_ = os.RemoveAll("/dev/" + d.group())
}
