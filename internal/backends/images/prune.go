package images

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// restTime is how long a base is kept after it was last asked for: whoever asked may be about
// to build on it.
const restTime = time.Hour

// Prune removes bases from dir, those first that were not asked for the longest, until they
// take limit bytes at most, and returns the paths of what it removed. It keeps a base whose
// digest is in used, that was asked for within the last hour, or that any qcow2 image in
// dir is built on, whoever made that. Overlays in other directories are not looked for:
// bases belong to the directory that they are in.
func Prune(ctx context.Context, dir string, limit int64, used map[string]bool) (removed []string, err error) {
	records, err := filepath.Glob(filepath.Join(dir, StateDir, "base-*.json"))
	if err != nil {
		return nil, err
	}
	type candidate struct {
		path, record string
		size         int64
		asked        time.Time
	}
	var idle []candidate
	var total int64
	for _, record := range records {
		var k known
		info, err := os.Stat(record)
		if err != nil || readJSON(record, &k) != nil || !ValidDigest(k.Digest) {
			continue
		}
		total += k.Bytes
		if !used[k.Digest] && time.Since(info.ModTime()) > restTime {
			idle = append(idle, candidate{basePath(dir, k.Digest, k.Format), record, k.Bytes, info.ModTime()})
		}
	}
	if total <= limit || len(idle) == 0 {
		return nil, nil
	}
	built, err := builtOn(ctx, dir)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(idle, func(a, b candidate) int { return a.asked.Compare(b.asked) })
	for _, c := range idle {
		if total <= limit {
			break
		}
		if built[c.path] {
			continue
		}
		if err := os.Remove(c.path); err != nil && !os.IsNotExist(err) {
			return removed, err
		}
		if err := os.Remove(c.record); err != nil {
			return removed, err
		}
		total -= c.size
		removed = append(removed, c.path)
	}
	return removed, nil
}

// builtOn names the files that qcow2 images in dir are built on. One that cannot be read
// ends it with an error, since it might be built on anything.
func builtOn(ctx context.Context, dir string) (map[string]bool, error) {
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
