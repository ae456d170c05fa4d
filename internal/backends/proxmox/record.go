package proxmox

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// record is what is known of a clone that may be running. It exists from before the clone is
// asked for until its VM was found with its mark; without it that VM is found all the same
// once the clone has ended.
type record struct {
	Proxy     string    `json:"proxy"`
	UID       string    `json:"uid"`
	VMID      int       `json:"vmid"`
	Template  int       `json:"template"`
	Task      pve.UPID  `json:"task,omitempty"` // empty: not known, or not yet asked for
	CreatedAt time.Time `json:"createdAt"`
}

// records is a directory with one file for each. The calls for one uid come one after
// another.
type records struct{ dir string }

func (r *records) path(uid string) string { return filepath.Join(r.dir, uid+".json") }

func (r *records) put(rec record) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(r.path(rec.UID), raw, 0o600)
}

// get returns a uid's record; ok is false without one. A damaged one is none.
func (r *records) get(uid string) (rec record, ok bool, err error) {
	raw, err := os.ReadFile(r.path(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, backends.Wrap(backends.ErrHostFault, "read record", err, "the record of a clone cannot be read")
	}
	if json.Unmarshal(raw, &rec) != nil || rec.UID != uid {
		return record{}, false, nil
	}
	return rec, true, nil
}

func (r *records) remove(uid string) error {
	if err := os.Remove(r.path(uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return backends.Wrap(backends.ErrHostFault, "remove record", err, "the record of a clone cannot be removed")
	}
	return nil
}

// exists reports whether there is a file for uid, damaged or not.
func (r *records) exists(uid string) bool {
	_, err := os.Lstat(r.path(uid))
	return err == nil
}

// all returns the records that can be read.
func (r *records) all() ([]record, error) {
	names, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []record
	for _, n := range names {
		uid, isRecord := strings.CutSuffix(n.Name(), ".json")
		if !isRecord {
			continue
		}
		rec, ok, err := r.get(uid)
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, rec)
		}
	}
	return out, nil
}
