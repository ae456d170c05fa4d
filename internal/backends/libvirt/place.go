package libvirt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// place is the directory of a storage pool on this machine. Whatever appears in it appears
// whole, by rename.
type place struct {
	dir    string
	uuid   string // of the pool
	tag    string // of the owner
	images *images.Cache
}

func (p place) state() string           { return filepath.Join(p.dir, images.StateDir) }
func (p place) disk(name string) string { return filepath.Join(p.dir, name+".qcow2") }
func (p place) seed(name string) string { return filepath.Join(p.dir, name+".iso") }
func (p place) marker(name string) string {
	return filepath.Join(p.state(), name+".json")
}

// draft is a marker on its way. Its name says whose it is, and so do those of writes to it that
// were cut off.
func (p place) draft(name string) string {
	return filepath.Join(p.state(), name+"."+p.tag+".new")
}

func (p place) nvram(name string) string   { return filepath.Join(p.state(), name+".nvram") }
func (p place) console(name string) string { return filepath.Join(p.state(), name+".log") }

// record says of which pool the directory is, so that the mount point is told from what is
// mounted there.
func (p place) record() string { return filepath.Join(p.state(), "pool") }

func (p place) recorded() bool {
	text, err := os.ReadFile(p.record())
	return err == nil && strings.TrimSpace(string(text)) == p.uuid && p.uuid != ""
}

// nameOf is the instance whose name a file bears, and what follows it. A temporary file of
// a write that was cut off begins with a dot.
func nameOf(file string) (name, suffix string, ok bool) {
	name, suffix, ok = strings.Cut(strings.TrimPrefix(file, "."), ".")
	return name, suffix, ok && isInstanceName(name)
}

// isInstanceName reports whether s looks like what [backends.InstanceName] makes.
func isInstanceName(s string) bool {
	rest, ok := strings.CutPrefix(s, "pf-")
	return ok && len(rest) == 16 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// files are those of instances, temporary ones of writes that were cut off and older parts
// of console logs among them. Markers come last.
func (p place) files() (map[string][]piece, error) {
	found, markers := map[string][]piece{}, map[string]piece{}
	for _, dir := range []string{p.dir, p.state()} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fileError("read pool directory", err)
		}
		for _, e := range entries {
			name, suffix, ok := nameOf(e.Name())
			if !ok {
				continue
			}
			path := filepath.Join(dir, e.Name())
			if path == p.marker(name) {
				markers[name] = piece{kind: "marker", name: path}
				continue
			}
			found[name] = append(found[name], piece{kind: kindOf(suffix), name: path, bytes: allocated(path)})
		}
	}
	for name, m := range markers {
		found[name] = append(found[name], m)
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

func (p place) free(*session) (int64, error) {
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
