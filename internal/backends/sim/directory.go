package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// directory is a store of one file for each object, "<name>.<kind>.json". A file is
// replaced by rename; its temporary name is fixed, so that a killed write leaves at most
// one more file, which the next write or removal of that object takes away.
type directory struct {
	path string
	sync bool
}

const (
	suffix    = ".json"
	temporary = ".tmp"
)

func openDirectory(path string, sync bool) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("backend.state: %w", err)
	}
	return &directory{path: path, sync: sync}, nil
}

func (d *directory) file(k key) string {
	return filepath.Join(d.path, k.Name+"."+k.Kind+suffix)
}

func (d *directory) get(k key) (object, bool, error) {
	b, err := os.ReadFile(d.file(k))
	if errors.Is(err, fs.ErrNotExist) {
		return object{}, false, nil
	}
	if err != nil {
		return object{}, true, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	var o object
	if err := json.Unmarshal(b, &o); err != nil {
		return object{}, true, fmt.Errorf("%w: %s: %w", errUnreadable, d.file(k), err)
	}
	return o, true, nil
}

func (d *directory) put(k key, o object) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(d.file(k)+temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && d.sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), d.file(k))
}

func (d *directory) remove(k key) error {
	for _, name := range []string{d.file(k) + temporary, d.file(k)} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (d *directory) names(kind string) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), "."+kind+suffix); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

func (d *directory) list(kind string) (map[string]object, map[string]error, error) {
	names, err := d.names(kind)
	if err != nil {
		return nil, nil, err
	}
	objects, unread := make(map[string]object, len(names)), map[string]error{}
	for _, name := range names {
		o, found, err := d.get(key{kind, name})
		switch {
		case err != nil:
			unread[name] = err
		case found:
			objects[name] = o
		}
	}
	return objects, unread, nil
}

func (d *directory) count(kind string) (int, error) {
	names, err := d.names(kind)
	return len(names), err
}
