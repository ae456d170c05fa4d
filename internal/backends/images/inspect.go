package images

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"proxyfleet/internal/backends"
)

// Info is what qemu-img says of a local image file.
type Info struct {
	Format          string `json:"format"`
	VirtualSize     uint64 `json:"virtual-size"` // bytes
	BackingFile     string `json:"full-backing-filename"`
	BackingFileName string `json:"backing-filename"`
	BackingFormat   string `json:"backing-filename-format"`
	Encrypted       bool   `json:"encrypted"`
	Dirty           bool   `json:"dirty-flag"`
	Specific        struct {
		Data struct {
			DataFile string `json:"data-file"`
			Corrupt  bool   `json:"corrupt"`
		} `json:"data"`
	} `json:"format-specific"`
}

// bounded is a command of qemu-img with 1 GiB of address space and 30 s of processor time.
func bounded(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "prlimit", append([]string{"--as=1073741824", "--cpu=30", "--", "qemu-img"}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd
}

// Inspect runs qemu-img info on a local file of a given format, never guessing it. It does
// not open a backing file.
func Inspect(ctx context.Context, path, format string) (Info, error) {
	out, err := bounded(ctx, "info", "--output=json", "--force-share", "-f", format, path).Output()
	if err != nil {
		return Info{}, fmt.Errorf("qemu-img info: %w%s", err, stderr(err))
	}
	var info Info
	if err := json.Unmarshal(out, &info); err != nil {
		return Info{}, fmt.Errorf("qemu-img info: %w", err)
	}
	return info, nil
}

// whole fails when a qcow2 image refers to clusters that it does not have, as one does that
// was cut off behind its header. qemu-img info does not look at them. Clusters that are
// only leaked harm nothing.
func whole(ctx context.Context, path string) error {
	const onlyLeaks = 3 // of the exit statuses in qemu-img(1), check
	_, err := bounded(ctx, "check", "-q", "--force-share", "-f", "qcow2", path).Output()
	if e, ok := err.(*exec.ExitError); err == nil || ok && e.ExitCode() == onlyLeaks {
		return nil
	}
	return fmt.Errorf("it is damaged or cut off: qemu-img check: %w%s", err, stderr(err))
}

func stderr(err error) string {
	if e, ok := err.(*exec.ExitError); ok && len(e.Stderr) > 0 {
		return ": " + string(e.Stderr[:min(len(e.Stderr), 400)])
	}
	return ""
}

// check decides whether a file may become a base, and returns its virtual size.
func check(ctx context.Context, path string, s Source) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, backends.Wrap(backends.ErrTransient, op, err, "read %s back", s)
	}
	defer f.Close()
	refuse := func(why error) error {
		return backends.Wrap(backends.ErrPermanent, op, why, "%s cannot be used as a base; nothing of it is kept", s)
	}
	if s.Kind() == "raw" {
		head := make([]byte, 4)
		if _, err := io.ReadFull(f, head); err != nil {
			return 0, refuse(fmt.Errorf("it is no disk image: %w", err))
		}
		if string(head) == qcow2Magic {
			return 0, refuse(fmt.Errorf("it is a qcow2 image, but configured as raw"))
		}
	} else if _, err := checkQcow2(f); err != nil {
		return 0, refuse(err)
	}
	info, err := Inspect(ctx, path, s.Kind())
	switch {
	case ctx.Err() != nil:
		return 0, backends.Wrap(backends.ErrTransient, op, ctx.Err(), "checking %s was stopped", s)
	case err != nil:
		return 0, refuse(err)
	case info.Format != s.Kind():
		return 0, refuse(fmt.Errorf("it is %s, but configured as %s", info.Format, s.Kind()))
	case info.BackingFileName != "" || info.BackingFile != "" || info.Specific.Data.DataFile != "":
		return 0, refuse(fmt.Errorf("it names other files"))
	case info.Encrypted || info.Specific.Data.Corrupt:
		return 0, refuse(fmt.Errorf("it is encrypted or corrupt"))
	}
	// The counts of a dirty image may be off; QEMU mends them.
	if s.Kind() == "qcow2" && !info.Dirty {
		err := whole(ctx, path)
		switch {
		case ctx.Err() != nil:
			return 0, backends.Wrap(backends.ErrTransient, op, ctx.Err(), "checking %s was stopped", s)
		case err != nil:
			return 0, refuse(err)
		}
	}
	return info.VirtualSize, nil
}

// Raw writes what a guest sees of a base to a file, for places that hold no qcow2 images. Zeros
// are holes in it. On an error no file is left.
func Raw(ctx context.Context, b Base, to string) error {
	cmd := exec.CommandContext(ctx, "qemu-img", "convert", "-q", "-f", b.Format, "-O", "raw", b.Path, to)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	_ = os.Remove(to)
	switch {
	case ctx.Err() != nil:
		return backends.Wrap(backends.ErrTransient, op, ctx.Err(), "converting %s was stopped", b.Source)
	case strings.Contains(string(out), "No space left on device"): // an exit status is all else there is
		return backends.Wrap(backends.ErrNoCapacity, op, err, "the disk is full while converting %s", b.Source)
	}
	return backends.Wrap(backends.ErrTransient, op, err, "converting %s: %s", b.Source, strings.TrimSpace(string(out[:min(len(out), 400)])))
}
