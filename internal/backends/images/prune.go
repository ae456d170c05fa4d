package images

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// restTime is how long a base is kept after it was last asked for: whoever asked may be about
// to build on it.
const restTime = time.Hour

// Stored is a base as it stands in a cache.
type Stored struct {
	Base
	Bytes int64     // that it takes
	Asked time.Time // when somebody asked for it last
}

// List returns the bases in dir that are whole, those first that were not asked for the
// longest.
func List(dir string) ([]Stored, error) {
	records, err := filepath.Glob(filepath.Join(dir, StateDir, "base-*.json"))
	if err != nil {
		return nil, err
	}
	var found []Stored
	for _, record := range records {
		var k known
		info, err := os.Stat(record)
		if err != nil || readJSON(record, &k) != nil || !ValidDigest(k.Digest) {
			continue // nothing that could be built on
		}
		base, err := Find(dir, k.Digest, k.Format)
		if err != nil {
			return nil, err
		}
		if base.Path != "" {
			found = append(found, Stored{base, k.Bytes, info.ModTime()})
		}
	}
	slices.SortFunc(found, func(a, b Stored) int { return a.Asked.Compare(b.Asked) })
	return found, nil
}

// Excess chooses what to remove of bases, in their order, until those that are left take
// limit bytes at most. It keeps a base whose digest is in used, and one that was asked for
// within the hour before now.
func Excess(bases []Stored, limit int64, used map[string]bool, now time.Time) (remove []Stored) {
	var total int64
	for _, b := range bases {
		total += b.Bytes
	}
	for _, b := range bases {
		if total <= limit {
			break
		}
		if !used[b.Digest] && now.Sub(b.Asked) > restTime {
			remove = append(remove, b)
			total -= b.Bytes
		}
	}
	return remove
}

// Remove removes a base from dir. Whether something is built on it is the caller's to know,
// see [BuiltOn].
func Remove(dir string, b Base) error {
	for _, path := range []string{b.Path, knownPath(dir, b.Digest)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fileError(err, Source{File: path})
		}
	}
	return nil
}

// BuiltOn names the files that qcow2 images in dir are built on, whoever made them. One that
// cannot be read ends it with an error, since it might be built on anything. Images in other
// directories are not looked for: bases belong to the directory that they are in.
func BuiltOn(ctx context.Context, dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	built := map[string]bool{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), "pf-base-") || !isQcow2(path) {
			continue
		}
		info, err := Inspect(ctx, path, "qcow2")
		if err != nil {
			return nil, err
		}
		built[info.BackingFile] = true
	}
	return built, nil
}

func isQcow2(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true // to be told of by whoever looks closer
	}
	defer f.Close()
	magic := make([]byte, 4)
	_, err = f.Read(magic)
	return err == nil && string(magic) == qcow2Magic
}
