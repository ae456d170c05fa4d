package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"proxyfleet/internal/bus"
)

func openID(t *testing.T, dir string) *identity {
	t.Helper()
	id, err := openIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTheHostIDStaysAndSessionsAreCounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first := openID(t, dir)
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	second := openID(t, dir)
	defer func() { _ = second.close() }()
	a, b := first.get(), second.get()
	if a.HostID != b.HostID || len(a.HostID) != 26 || a.HostID != strings.ToLower(a.HostID) {
		t.Errorf("host ids: %q, then %q", a.HostID, b.HostID)
	}
	if a.Session != 1 || b.Session != 2 {
		t.Errorf("sessions: %d, then %d, want 1 and 2", a.Session, b.Session)
	}
}

func TestTwoAgentsNeverShareAStateDirectory(t *testing.T) {
	dir := t.TempDir()
	id := openID(t, dir)
	if _, err := openIdentity(dir); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("got %v, want a word about the other agent", err)
	}
	if err := AcceptStreams(dir, "x"); err == nil {
		t.Error("accept-streams worked beside a running agent")
	}
	_ = id.close()
	_ = openID(t, dir).close()
}

func TestADamagedIdentityIsNeverReplaced(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"not JSON":                        func(dir string) error { return os.WriteFile(filepath.Join(dir, identityFile), []byte("{"), 0o600) },
		"no host id":                      func(dir string) error { return os.WriteFile(filepath.Join(dir, identityFile), []byte("{}"), 0o600) },
		"missing while there is a record": func(dir string) error { return os.WriteFile(filepath.Join(dir, recordFile), nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := openIdentity(dir); err == nil || !strings.Contains(err.Error(), "restore") {
				t.Errorf("got %v, want a word about restoring", err)
			}
		})
	}
}

func TestTheInstallationIsPinnedOnce(t *testing.T) {
	dir := t.TempDir()
	id := openID(t, dir)
	one := bus.Installation{ID: "one", Incarnation: "i1"}
	if err := id.pin(one); err != nil {
		t.Fatal(err)
	}
	_ = id.close()
	id = openID(t, dir)
	defer func() { _ = id.close() }()
	if err := id.pin(bus.Installation{ID: "one", Incarnation: "i2"}); err != nil {
		t.Errorf("another incarnation: %v", err)
	}
	if err := id.pin(bus.Installation{ID: "two"}); !errors.Is(err, ErrOtherInstallation) {
		t.Errorf("another installation: got %v", err)
	}
	if w := id.get(); w.Installation != "one" || w.Incarnation != "i1" {
		t.Errorf("pinned: %+v", w)
	}
}

func TestAcceptedStreamsBeginWithNewSequences(t *testing.T) {
	dir := t.TempDir()
	id := openID(t, dir)
	if err := id.pin(bus.Installation{ID: "one", Incarnation: "i1"}); err != nil {
		t.Fatal(err)
	}
	rec, _, err := openRecord(dir, id.get().HostID)
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.put([]entry{someEntry("a", 100)}, 100); err != nil {
		t.Fatal(err)
	}
	_, _ = rec.close(), id.close()
	if err := AcceptStreams(dir, "i2"); err != nil {
		t.Fatal(err)
	}
	id = openID(t, dir)
	defer func() { _ = id.close() }()
	if w := id.get(); w.Incarnation != "i2" || w.Session != 2 {
		t.Errorf("identity: %+v", w)
	}
	rec, _, err = openRecord(dir, id.get().HostID)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rec.close() }()
	if e, held, _, _ := rec.known("a"); !held || e.Seq != 0 || rec.highest() != 0 {
		t.Errorf("a: held %v, seq %d, highest %d", held, e.Seq, rec.highest())
	}
	owner, err := ReadOwner(dir)
	if err != nil || owner.Installation != "one" || owner.HostID != id.get().HostID {
		t.Errorf("owner: %+v, %v", owner, err)
	}
}
