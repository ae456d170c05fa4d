package images

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"proxyfleet/internal/backends"
)

// StateDir is the folder in a cache's directory for what is not an image.
const StateDir = ".proxyfleet"

// known is the record beside a base.
type known struct {
	Digest      string `json:"digest"`
	Format      string `json:"format"`
	Bytes       int64  `json:"bytes"`
	VirtualSize uint64 `json:"virtualSize"`
	Source      string `json:"source"`
}

// pin is the digest that an entry without one was pinned to.
type pin struct {
	Digest string `json:"digest"`
	Source string `json:"source"`
}

// fetch makes the base of s be there. One process at a time does so for an entry.
func (c *Cache) fetch(ctx context.Context, dir string, s Source, report Report) (Base, error) {
	state := filepath.Join(dir, StateDir)
	if err := os.MkdirAll(state, 0o711); err != nil { // qemu passes through, and lists nothing
		return Base{}, fileError(err, s)
	}
	if base, _, err := lookup(dir, s); err != nil || base.Path != "" {
		if err == nil {
			touch(knownPath(dir, base.Digest))
		}
		return base, err
	}
	part, err := Lock(ctx, filepath.Join(state, "part-"+s.entry()))
	if err != nil && ctx.Err() != nil {
		return Base{}, stopped(ctx.Err(), s)
	}
	if err != nil {
		return Base{}, fileError(err, s)
	}
	defer part.Close() // releases the lock
	touch(part.Name())
	// Somebody else may have brought it while we waited for the lock.
	base, pinned, err := lookup(dir, s)
	if err != nil || base.Path != "" {
		return base, err
	}
	if err := backends.Step(ctx, "image.download"); err != nil {
		return Base{}, err
	}
	start := time.Now()
	digest, err := c.bring(ctx, part, s, pinned, report)
	if err != nil {
		return Base{}, err
	}
	if base, err = c.publish(ctx, dir, part, s, digest, report); err != nil {
		if errors.Is(err, backends.ErrPermanent) || errors.Is(err, backends.ErrNoCapacity) {
			discard(part)
		}
		return Base{}, err
	}
	c.opts.Log.InfoContext(ctx, "image fetched", "image", s.Key, "source", s.String(),
		"digest", base.Digest, "path", base.Path, "seconds", int(time.Since(start).Seconds()))
	return base, nil
}

// touch notes that somebody asked for a file, which keeps it from being pruned for a while.
func touch(path string) {
	now := time.Now()
	_ = os.Chtimes(path, now, now)
}

// lookup finds a base that is already there; an empty Path says that none is. want is the
// digest that the source must have: its own or the pinned one, empty where there is none.
func lookup(dir string, s Source) (base Base, want string, err error) {
	if want, err = Wanted(dir, s); err != nil || want == "" {
		return Base{}, "", err
	}
	base, err = Find(dir, want, s.Kind())
	return base, want, err
}

// Wanted is the digest that s must have: its own, or the one that its entry was pinned to in
// dir; empty where anything would do.
func Wanted(dir string, s Source) (digest string, err error) {
	if s.Digest != "" {
		return s.Digest, nil
	}
	var p pin
	err = readJSON(pinPath(dir, s), &p)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ValidDigest(p.Digest) {
		return "", nil
	}
	if err != nil {
		return "", fileError(err, s)
	}
	return p.Digest, nil
}

// Find returns the base with a digest and format, with an empty Path when it is not there.
func Find(dir, digest, format string) (Base, error) {
	path := basePath(dir, digest, format)
	info, err := os.Stat(path)
	var k known
	if err == nil {
		err = readJSON(knownPath(dir, digest), &k)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Base{}, nil
	case err != nil:
		return Base{}, fileError(err, Source{File: path})
	case k.Digest != digest || k.Format != format || k.Bytes != info.Size():
		return Base{}, nil // not what was published: fetched again, under the same name
	}
	return Base{Path: path, Format: k.Format, Digest: k.Digest, VirtualSize: k.VirtualSize, Source: k.Source}, nil
}

func basePath(dir, digest, format string) string {
	return filepath.Join(dir, "pf-base-"+short(digest)+"."+format)
}

func knownPath(dir, digest string) string {
	return filepath.Join(dir, StateDir, "base-"+short(digest)+".json")
}

func pinPath(dir string, s Source) string {
	return filepath.Join(dir, StateDir, "pin-"+s.entry()+".json")
}

// publish unpacks and checks a whole download and makes it a base.
func (c *Cache) publish(ctx context.Context, dir string, part *os.File, s Source, digest string, report Report) (Base, error) {
	image, err := c.unpack(ctx, part, s, report)
	if err != nil {
		return Base{}, err
	}
	if image != part {
		defer remove(image) // unless it was renamed
	}
	report("checking image", 0)
	virtual, err := check(ctx, image.Name(), s)
	if err != nil {
		return Base{}, err
	}
	info, err := image.Stat()
	if err != nil {
		return Base{}, fileError(err, s)
	}
	if err := backends.Step(ctx, "image.publish"); err != nil {
		return Base{}, err
	}
	k := known{Digest: digest, Format: s.Kind(), Bytes: info.Size(), VirtualSize: virtual, Source: s.String()}
	base := Base{Path: basePath(dir, digest, s.Kind()), Format: k.Format, Digest: digest, VirtualSize: virtual, Source: k.Source}
	err = errors.Join(image.Chmod(0o644), image.Sync())
	if err == nil {
		err = writeJSON(knownPath(dir, digest), k)
	}
	if err == nil {
		err = os.Rename(image.Name(), base.Path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err == nil && s.Digest == "" {
		err = writeJSON(pinPath(dir, s), pin{Digest: digest, Source: s.String()})
	}
	if err != nil {
		return Base{}, fileError(err, s)
	}
	discard(part) // what it was renamed to stays
	return base, nil
}

// discard removes a partial download for good.
func discard(part *os.File) {
	_ = os.Remove(part.Name() + ".json")
	_ = os.Remove(part.Name())
}

// digestOf hashes a file from its start, as far as size.
func digestOf(f *os.File, size int64, like string) (string, error) {
	name, h := newHash(like)
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		return "", err
	}
	return name + ":" + hex.EncodeToString(h.Sum(nil)), nil
}

func readJSON(path string, into any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

func writeJSON(path string, doc any) error {
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, append(b, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(path)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// fileError gives an error of the local file system its class.
func fileError(err error, s Source) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return backends.Wrap(backends.ErrNoCapacity, op, err, "the disk is full while fetching %s", s)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return backends.Wrap(backends.ErrHostFault, op, err, "the image directory cannot be written while fetching %s; give the agent's user access to it", s)
	}
	return backends.Wrap(backends.ErrTransient, op, err, "fetching %s", s)
}

func stopped(err error, s Source) error {
	return backends.Wrap(backends.ErrTransient, op, err, "fetching %s was stopped; what is downloaded is kept", s)
}
