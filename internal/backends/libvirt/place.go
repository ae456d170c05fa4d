package libvirt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	golibvirt "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// place is the directory of a storage pool.
type place struct{ dir string }

func (p place) state() string           { return filepath.Join(p.dir, images.StateDir) }
func (p place) disk(name string) string { return filepath.Join(p.dir, name+".qcow2") }
func (p place) seed(name string) string { return filepath.Join(p.dir, name+".iso") }
func (p place) marker(name string) string {
	return filepath.Join(p.state(), name+".json")
}
func (p place) nvram(name string) string   { return filepath.Join(p.state(), name+".nvram") }
func (p place) console(name string) string { return filepath.Join(p.state(), name+".log") }

// file is one file of an instance.
type file struct{ kind, path string }

// files are those that exist of an instance, the marker left out. Temporary ones of a write
// that was cut off are among them, and older parts of the console log.
func (p place) files(name string) ([]file, error) {
	var found []file
	for _, dir := range []string{p.dir, p.state()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fileError("read pool directory", err)
		}
		for _, e := range entries {
			rest, ours := strings.CutPrefix(strings.TrimPrefix(e.Name(), "."), name+".")
			path := filepath.Join(dir, e.Name())
			if ours && path != p.marker(name) {
				found = append(found, file{kindOf(rest), path})
			}
		}
	}
	return found, nil
}

func kindOf(suffix string) string {
	switch {
	case suffix == "qcow2":
		return "volume"
	case suffix == "iso":
		return "seed"
	case suffix == "nvram":
		return "nvram"
	case strings.HasPrefix(suffix, "log"):
		return "console"
	}
	return "temporary"
}

// exists reports whether a file is there; an error to find out counts as there.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// free is the room in bytes that the place's file system has for the agent.
func (p place) free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(p.dir, &st); err != nil {
		return 0, fileError("read free space", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// allocated is what a file takes on the disk, 0 when it is not there.
func allocated(path string) int64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// pool finds the configured pool's directory. The pool must be active: an inactive one may
// be a file system that is not mounted, whose directory would be the root disk's.
func (b *Backend) pool(s *session) (place, error) {
	p, err := b.anyPool(s)
	if err != nil {
		return place{}, err
	}
	if !p.active {
		return place{}, backends.Errorf(backends.ErrHostFault, "storage pool",
			"pool %q is not active; start it (virsh pool-start) once its target is mounted", b.cfg.StoragePool)
	}
	return p.place, nil
}

// poolState is a pool as the daemon describes it.
type poolState struct {
	place
	active bool
	kind   string
}

func (b *Backend) anyPool(s *session) (poolState, error) {
	pool, err := read(s, "storage pool", func(l *golibvirt.Libvirt) (golibvirt.StoragePool, error) {
		return l.StoragePoolLookupByName(b.cfg.StoragePool)
	})
	if err != nil {
		return poolState{}, err
	}
	active, err := read(s, "storage pool", func(l *golibvirt.Libvirt) (int32, error) { return l.StoragePoolIsActive(pool) })
	if err != nil {
		return poolState{}, err
	}
	text, err := read(s, "storage pool", func(l *golibvirt.Libvirt) (string, error) { return l.StoragePoolGetXMLDesc(pool, 0) })
	if err != nil {
		return poolState{}, err
	}
	var desc libvirtxml.StoragePool
	if err := desc.Unmarshal(text); err != nil {
		return poolState{}, backends.Wrap(backends.ErrTransient, "storage pool", err, "the description of pool %q cannot be read", b.cfg.StoragePool)
	}
	switch desc.Type {
	case "dir", "fs", "netfs":
	default:
		return poolState{}, backends.Errorf(backends.ErrHostFault, "storage pool",
			"pool %q is of type %s; proxies need one with a directory: dir, fs or netfs", b.cfg.StoragePool, desc.Type)
	}
	if desc.Target == nil || !filepath.IsAbs(desc.Target.Path) {
		return poolState{}, backends.Errorf(backends.ErrHostFault, "storage pool", "pool %q has no target directory", b.cfg.StoragePool)
	}
	// A path through a symbolic link gets no AppArmor rule.
	dir, err := filepath.EvalSymlinks(desc.Target.Path)
	if err != nil {
		return poolState{}, fileError("storage pool", err)
	}
	return poolState{place: place{dir}, active: active == 1, kind: desc.Type}, nil
}

// fileError gives an error of the local file system its class.
func fileError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return backends.Wrap(backends.ErrNoCapacity, op, err, "the disk is full")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return backends.Wrap(backends.ErrHostFault, op, err, "the agent may not use the storage pool's directory; give its user access")
	}
	return backends.Wrap(backends.ErrTransient, op, err, "a file could not be used")
}
