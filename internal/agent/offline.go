package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/oklog/ulid/v2"

	"proxyfleet/internal/backends"
)

// ReadOwner is what the marks of this host say, read beside an agent that may be running.
// Before the first contact with a coordinator both are empty.
func ReadOwner(stateDir string) (backends.Owner, error) {
	raw, err := os.ReadFile(filepath.Join(stateDir, identityFile))
	if errors.Is(err, os.ErrNotExist) {
		return backends.Owner{}, nil
	}
	var w who
	if err == nil {
		err = json.Unmarshal(raw, &w)
	}
	if err != nil {
		return backends.Owner{}, fmt.Errorf("read who this agent is: %w", err)
	}
	return backends.Owner{Installation: w.Installation, HostID: w.HostID}, nil
}

// AcceptStreams makes the agent of a state directory take assignments from streams that
// were made anew for the same installation. The sequences of the old ones mean nothing any
// more; generations still do. It fails while the agent runs.
func AcceptStreams(stateDir, incarnation string) error {
	if incarnation == "" {
		return errors.New("no incarnation given; the agent's log and the host's checks name it")
	}
	lock, err := lockDir(stateDir)
	if err != nil {
		return err
	}
	id := &identity{dir: stateDir, lock: lock}
	defer func() { _ = id.close() }()
	if err := id.load(); err != nil {
		return err
	}
	if id.who.Installation == "" {
		return fmt.Errorf("%s belongs to no installation yet: there is nothing to accept", stateDir)
	}
	rec, _, err := openRecord(stateDir, id.who.HostID)
	if err != nil {
		return err
	}
	// Sequences first: with them gone and the old incarnation still pinned, the agent only
	// stays frozen.
	err = rec.restartSequences()
	if err = errors.Join(err, rec.close()); err != nil {
		return err
	}
	return id.update(func(w *who) { w.Incarnation = incarnation })
}

// RestoreIdentity gives the state directory of a host that was installed anew the host id
// that the host had, so that it is the same host: its instances carry that id in their
// marks, and its assignments name it. session is the last one that the fleet saw; states of
// an earlier one are dropped. A directory that belongs to a host already is left as it is.
func RestoreIdentity(stateDir, hostID string, session uint64) error {
	if _, err := ulid.ParseStrict(strings.ToUpper(hostID)); err != nil || hostID != strings.ToLower(hostID) {
		return fmt.Errorf("%q is no host id; the host's record in the inventory has it", hostID)
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w", err)
	}
	lock, err := lockDir(stateDir)
	if err != nil {
		return err
	}
	id := &identity{dir: stateDir, lock: lock}
	defer func() { _ = id.close() }()
	for _, file := range []string{identityFile, recordFile} {
		if _, err := os.Stat(filepath.Join(stateDir, file)); err == nil {
			return fmt.Errorf("%s has a %s: it is a host already, and stays the one that it is; move the whole directory away first", stateDir, file)
		}
	}
	id.who = who{HostID: hostID, Session: session, Resync: true}
	return id.save()
}
