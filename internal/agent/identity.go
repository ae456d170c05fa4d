package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/google/renameio/v2"
	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/bus"
)

// Files of the state directory.
const (
	lockFile     = "lock"
	identityFile = "identity.json"
	recordFile   = "record.log"
)

// ErrOtherInstallation says that the streams belong to another fleet than the one that this
// state directory works for. Nothing was recorded or changed.
var ErrOtherInstallation = errors.New("this is another installation")

// who is the content of identity.json.
type who struct {
	HostID       string `json:"hostId"`                 // lower-case ULID, made once
	Session      uint64 `json:"session"`                // starts so far; not a time, for clocks go back
	Installation string `json:"installation,omitempty"` // pinned at the first contact
	Incarnation  string `json:"incarnation,omitempty"`
	Recovery     string `json:"recovery,omitempty"` // of the fleet, the last that was accepted
	Resync       bool   `json:"resync,omitempty"`   // the record was lost and is not complete again
}

// identity is who this agent is, kept in a state directory that it holds locked.
type identity struct {
	dir  string
	lock *os.File

	mu  sync.Mutex // guards who and its file
	who who
}

// openIdentity locks dir, making it where it is missing, and counts this start.
func openIdentity(dir string) (*identity, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	id := &identity{dir: dir, lock: lock}
	if err := id.load(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	id.who.Session++
	if err := id.save(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return id, nil
}

// lockDir takes the lock that ends with the process, however it ends.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another agent works with the state directory %s; two agents never share one", dir)
		}
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	return f, nil
}

func (id *identity) load() error {
	path := filepath.Join(id.dir, identityFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(id.dir, recordFile)); err == nil {
			return fmt.Errorf("%s has a record but no %s: restore that file, or move the whole directory away to start as a new host "+
				"(its instances keep running, and nobody looks after them)", id.dir, identityFile)
		}
		id.who = who{HostID: strings.ToLower(ulid.Make().String())}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read who this agent is: %w", err)
	}
	if err := json.Unmarshal(raw, &id.who); err != nil {
		return fmt.Errorf("%s is damaged (%w): restore it; a new id would orphan every instance of this host", path, err)
	}
	if _, err := ulid.ParseStrict(strings.ToUpper(id.who.HostID)); err != nil {
		return fmt.Errorf("%s has no valid hostId: restore it; a new id would orphan every instance of this host", path)
	}
	return nil
}

// save replaces identity.json by rename, synced.
func (id *identity) save() error {
	raw, err := json.MarshalIndent(id.who, "", "  ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(filepath.Join(id.dir, identityFile), append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("write who this agent is: %w", err)
	}
	return syncDir(id.dir)
}

// get returns a copy.
func (id *identity) get() who {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.who
}

// pin remembers the installation at the first contact and compares it at every later one.
// With another installation it is [ErrOtherInstallation]. A new incarnation of the same
// installation is not pinned; the caller compares it.
func (id *identity) pin(i bus.Installation) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.who.Installation == i.ID:
		return nil
	case id.who.Installation != "":
		return fmt.Errorf("%w: this host works for %s, the streams belong to %s; nothing was changed. Point nats.url at the right server, "+
			"or, to give the host to the other fleet, remove its proxies first and then %s", ErrOtherInstallation, id.who.Installation, i.ID, id.dir)
	}
	before := id.who
	id.who.Installation, id.who.Incarnation = i.ID, i.Incarnation
	if err := id.save(); err != nil {
		id.who = before
		return err
	}
	return nil
}

// update changes identity.json; on an error nothing has changed.
func (id *identity) update(change func(*who)) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	before := id.who
	change(&id.who)
	if id.who == before {
		return nil
	}
	if err := id.save(); err != nil {
		id.who = before
		return err
	}
	return nil
}

// close gives up the lock.
func (id *identity) close() error { return id.lock.Close() }

// syncDir makes a rename or a new file in dir survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
