package images

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Rest is what fetches and uploads have left in a directory, or are at, and that is no base.
type Rest struct {
	Path   string    // of one file of it
	Source string    // where it comes from, for people; empty where that is not known
	Bytes  int64     // that it takes
	Asked  time.Time // when somebody asked for it last
	Busy   bool      // somebody is at it

	files []string // what goes with it
	lock  string   // whoever is at it has this file locked; empty: it is written at one go
}

// Idle reports whether nobody wants it any more: nobody is at it, and nobody asked for it
// within the hour before now. A download that is tried again and again is asked for each time.
func (r Rest) Idle(now time.Time) bool { return !r.Busy && now.Sub(r.Asked) > restTime }

// Names of what stands in [StateDir]. What is written at one go begins with a dot until it
// is whole.
var (
	lockedName  = regexp.MustCompile(`^\.?((?:part|upload)-[0-9a-f]{24})(?:\..*)?$`)
	writtenName = regexp.MustCompile(`^\.((?:base|pin)-[0-9a-f]{24})\.json`)
	recordName  = regexp.MustCompile(`^(base-[0-9a-f]{24})\.json$`)
	baseName    = regexp.MustCompile(`^pf-(base-[0-9a-f]{24})\.(?:qcow2|raw)$`)
)

// Rests lists what in dir is no base and was made on the way to one: parts of downloads and
// what is unpacked of them, locks, files whose writing was cut off, and records and images
// without each other.
func Rests(dir string) ([]Rest, error) {
	whole, err := List(dir)
	if err != nil {
		return nil, err
	}
	bases := map[string]bool{}
	for _, b := range whole {
		bases[b.Path], bases[knownPath(dir, b.Digest)] = true, true
	}
	state := filepath.Join(dir, StateDir)
	found := map[string]*Rest{}
	for _, in := range []string{dir, state} {
		entries, err := os.ReadDir(in)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			path := filepath.Join(in, e.Name())
			if stem := stemOf(e.Name(), in == state); stem != "" && !bases[path] {
				add(found, state, stem, path)
			}
		}
	}
	var all []Rest
	for _, r := range found {
		if r.lock != "" {
			r.files = append(slices.DeleteFunc(r.files, func(f string) bool { return f == r.lock }), r.lock)
			r.Path, r.Busy = r.lock, Locked(r.lock)
			var v validator
			if readJSON(r.lock+".json", &v) == nil {
				r.Source = v.URL
			}
		}
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Rest) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// stemOf is what files that go with each other have in common; empty for what is not ours.
func stemOf(name string, inState bool) string {
	kinds := []*regexp.Regexp{baseName}
	if inState {
		kinds = []*regexp.Regexp{lockedName, writtenName, recordName}
	}
	for _, kind := range kinds {
		if m := kind.FindStringSubmatch(name); m != nil {
			return m[1]
		}
	}
	return ""
}

// add counts a file to the rest that it goes with.
func add(found map[string]*Rest, state, stem, path string) {
	info, err := os.Lstat(path)
	if err != nil {
		return // it went meanwhile
	}
	r := found[stem]
	if r == nil {
		r = &Rest{Path: path}
		if lockedName.MatchString(stem) {
			r.lock = filepath.Join(state, stem)
		}
		found[stem] = r
	}
	r.files = append(r.files, path)
	r.Bytes += allocated(info)
	if info.ModTime().After(r.Asked) {
		r.Asked = info.ModTime()
	}
}

// allocated is what a file takes on the disk: what is unpacked has holes.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}

// Remove removes what is still idle of it, and reports whether that was something. Whether
// something is built on its Path is the caller's to know, see [BuiltOn].
func (r Rest) Remove(now time.Time) (removed bool, err error) {
	if r.lock != "" {
		f, err := tryLock(r.lock, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist): // what its owner left goes by its age alone
		case err != nil || f == nil:
			return false, err
		default:
			defer f.Close()
		}
	}
	for _, path := range r.files {
		info, err := os.Lstat(path)
		if err == nil && now.Sub(info.ModTime()) <= restTime {
			return false, nil // somebody asked for it meanwhile
		}
	}
	for _, path := range r.files {
		err := os.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fileError(err, Source{File: path})
		}
		removed = removed || err == nil
	}
	return removed, nil
}

// UploadLock is the file in dir that is locked by whoever brings a base on to elsewhere. sum is
// what stands of the base's digest in its name.
func UploadLock(dir, sum string) string { return filepath.Join(dir, StateDir, "upload-"+sum) }

// Transit is [Rests] for a directory that is only a stop on the way: whole bases are rests as
// well.
func Transit(dir string) ([]Rest, error) {
	rests, err := Rests(dir)
	if err != nil {
		return nil, err
	}
	whole, err := List(dir)
	for _, b := range whole {
		lock := UploadLock(dir, short(b.Digest))
		rests = append(rests, Rest{
			Path: b.Path, Source: b.Source, Bytes: b.Bytes, Asked: b.Asked, Busy: Locked(lock),
			files: []string{knownPath(dir, b.Digest), b.Path}, lock: lock,
		})
	}
	return rests, err
}
