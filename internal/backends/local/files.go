package local

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"

	"proxyfleet/internal/backends"
)

// The kinds of files, by extension, in the order in which they are removed.
const (
	extRun   = ".run"
	extLog   = ".log"
	extOld   = ".log.1" // what the log was before it began anew
	extConf  = ".conf"
	extLock  = ".lock"
	extState = ".json"
)

// marked are the files that carry the mark.
var marked = [...]string{extState, extConf, extLock}

// state is what the agent's side knows of a uid.
type state struct {
	Mark       backends.Mark    `json:"mark"`
	Generation uint64           `json:"generation"` // 0: half-made
	Desired    backends.Desired `json:"desired"`
	Address    netip.Addr       `json:"address"`
	Port       int              `json:"port"`
}

// conf is what the child reads.
type conf struct {
	Mark         backends.Mark  `json:"mark"`
	Address      netip.Addr     `json:"address"`
	Port         int            `json:"port"`
	Sources      []netip.Addr   `json:"sources,omitempty"` // at most one of a family; none: the system's choice
	Username     string         `json:"username,omitempty"`
	PasswordHash string         `json:"passwordHash,omitempty"`
	AllowFrom    []netip.Prefix `json:"allowFrom,omitempty"`
	Private      bool           `json:"private,omitempty"`
	ConnectPorts []int          `json:"connectPorts,omitempty"`
	Loopback     bool           `json:"loopback,omitempty"`
	Limits       Limits         `json:"limits,omitzero"`
}

// lockFile is what stands in the file that is locked.
type lockFile struct {
	Mark backends.Mark `json:"mark"`
}

// run is what the child says of itself. It counts only while PID holds the lock, and its
// error only for the digest that was tried.
type run struct {
	PID     int    `json:"pid"`
	Applied string `json:"applied,omitempty"` // digest of the configuration in force
	Tried   string `json:"tried,omitempty"`   // digest of one that could not be applied
	Class   string `json:"class,omitempty"`   // of the error
	Error   string `json:"error,omitempty"`
}

// paths are the files of one instance name.
type paths struct{ dir, name string }

func (p paths) file(ext string) string { return filepath.Join(p.dir, p.name+ext) }

// encode gives the bytes of a file and their digest.
func encode(v any) (data []byte, digest string, err error) {
	data, err = json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, "", err
	}
	data = append(data, '\n')
	return data, digestOf(data), nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// put replaces a file durably. What a killed put leaves is a temporary file beside it, which
// sweepTemporary takes away.
func put(path string, v any) error {
	data, _, err := encode(v)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, data, 0o600)
}

// get reads a file; found is false when it is not there.
func get(path string, v any) (found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweepTemporary removes what killed writes left of one name. renameio puts its temporary
// files beside the target, as ".<target><random>".
func (p paths) sweepTemporary() error {
	left, err := filepath.Glob(filepath.Join(p.dir, "."+p.name+".*"))
	if err != nil {
		return err
	}
	var errs error
	for _, path := range left {
		errs = errors.Join(errs, remove(path))
	}
	return errs
}
