package images

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

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
	Specific        struct {
		Data struct {
			DataFile string `json:"data-file"`
			Corrupt  bool   `json:"corrupt"`
		} `json:"data"`
	} `json:"format-specific"`
}

// Inspect runs qemu-img info on a local file of a given format, never guessing it, within
// 1 GiB of address space and 30 s of processor time. It does not open a backing file.
func Inspect(ctx context.Context, path, format string) (Info, error) {
	cmd := exec.CommandContext(ctx, "prlimit", "--as=1073741824", "--cpu=30", "--",
		"qemu-img", "info", "--output=json", "--force-share", "-f", format, path)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		return Info{}, fmt.Errorf("qemu-img info: %w%s", err, stderr(err))
	}
	var info Info
	if err := json.Unmarshal(out, &info); err != nil {
		return Info{}, fmt.Errorf("qemu-img info: %w", err)
	}
	return info, nil
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
	if s.format() == "raw" {
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
	info, err := Inspect(ctx, path, s.format())
	switch {
	case ctx.Err() != nil:
		return 0, backends.Wrap(backends.ErrTransient, op, ctx.Err(), "checking %s was stopped", s)
	case err != nil:
		return 0, refuse(err)
	case info.Format != s.format():
		return 0, refuse(fmt.Errorf("it is %s, but configured as %s", info.Format, s.format()))
	case info.BackingFileName != "" || info.BackingFile != "" || info.Specific.Data.DataFile != "":
		return 0, refuse(fmt.Errorf("it names other files"))
	case info.Encrypted || info.Specific.Data.Corrupt:
		return 0, refuse(fmt.Errorf("it is encrypted or corrupt"))
	}
	return info.VirtualSize, nil
}
