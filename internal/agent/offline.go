package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

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
