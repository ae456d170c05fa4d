package libvirt

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// overlayFits reports whether the disk that is there is an overlay on base of the given
// size. One that an earlier try left, or that was made by hand, need not be.
func overlayFits(ctx context.Context, path string, base images.Base, size int64) bool {
	info, err := images.Inspect(ctx, path, "qcow2")
	return err == nil && info.Format == "qcow2" && info.BackingFile == base.Path &&
		info.BackingFormat == base.Format && info.VirtualSize == uint64(size)
}

// createOverlay makes an empty overlay of size bytes on base and puts it in place as a
// whole; temporary is on the same file system.
func createOverlay(ctx context.Context, path, temporary string, base images.Base, size int64) error {
	const op = "create disk"
	_ = os.Remove(temporary)
	cmd := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", base.Format, "-b", base.Path,
		temporary, strconv.FormatInt(size, 10))
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return backends.Wrap(backends.ErrTransient, op, ctx.Err(), "stopped")
	case strings.Contains(string(out), "No space left on device"): // an exit status is all else there is
		_ = os.Remove(temporary)
		return backends.Wrap(backends.ErrNoCapacity, op, err, "the pool is full")
	default:
		return backends.Wrap(backends.ErrTransient, op, err, "qemu-img create: %s", strings.TrimSpace(string(out[:min(len(out), 400)])))
	}
	f, err := os.OpenFile(temporary, os.O_RDWR, 0)
	if err != nil {
		return fileError(op, err)
	}
	defer f.Close()
	if err := f.Chmod(0o600); err != nil {
		return fileError(op, err)
	}
	if err := f.Sync(); err != nil {
		return fileError(op, err)
	}
	return fileError(op, os.Rename(temporary, path))
}
