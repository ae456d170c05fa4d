package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"
)

// retiredFor is how long a retired uid is remembered. No copy of an assignment stays
// undelivered for longer: the stream's consumer redelivers within minutes.
const retiredFor = 7 * 24 * time.Hour

// record is what this agent was told, on disk: an append-only log that is rewritten by
// rename when most of it is old. It has credentials of proxies, hence its file mode 0600.
//
// mu guards everything. Appends that were not synced when the machine lost power are gone;
// only what puts synced is ever acked.
type record struct {
	dir    string
	hostID string

	mu      sync.Mutex
	file    *os.File
	size    int64 // of the good part of the file
	lines   int   // in the file
	entries map[string]entry
	retired map[string]retired
	seen    map[string]seen
	seq     uint64

	unsynced bool // something that was put is perhaps not on disk
	doubtful bool // a sync has failed
}

// damage tells what opening a record found wrong. The zero value is a whole record.
type damage struct {
	Missing bool // there was no file
	Corrupt int  // damaged lines with good ones after them
	Torn    bool // the last lines were cut off: never acked, so nothing is lost
}

// Lost reports whether assignments that were acked may be missing.
func (d damage) Lost() bool { return d.Missing || d.Corrupt > 0 }

// openRecord reads the record of hostID in dir. What is readable of a damaged one is kept.
// A record of another host id is an error.
func openRecord(dir, hostID string) (*record, damage, error) {
	r := &record{dir: dir, hostID: hostID, entries: map[string]entry{}, retired: map[string]retired{}, seen: map[string]seen{}}
	raw, err := os.ReadFile(r.path())
	var d damage
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.Missing = true
	case err != nil:
		return nil, d, fmt.Errorf("read the record: %w", err)
	default:
		if d, err = r.replay(raw); err != nil {
			return nil, d, err
		}
	}
	r.forgetOld(time.Now())
	// Every start writes the file anew: damage never stays, and what follows appends to a
	// file that is known to be whole.
	if err := r.compactLocked(); err != nil {
		return nil, d, err
	}
	return r, d, nil
}

func (r *record) path() string { return filepath.Join(r.dir, recordFile) }

func (r *record) replay(raw []byte) (damage, error) {
	var d damage
	bad := 0 // damaged lines since the last good one
	first := true
	for len(raw) > 0 {
		text, rest, whole := bytes.Cut(raw, []byte("\n"))
		raw = rest
		l, err := decodeLine(text)
		if err != nil || !whole {
			bad++
			first = false
			continue
		}
		if l.Head != nil && (l.Head.HostID != r.hostID || l.Head.Version > recordVersion) {
			return d, fmt.Errorf("%s is the record of host id %s, version %d; this is %s, version %d: it was left alone, move it away",
				r.path(), l.Head.HostID, l.Head.Version, r.hostID, recordVersion)
		}
		if first && l.Head == nil {
			d.Corrupt++ // whole lines are missing
		}
		first = false
		d.Corrupt, bad = d.Corrupt+bad, 0
		r.lines++
		r.apply(l)
	}
	d.Torn = bad > 0
	d.Missing = first || r.lines == 0 // the first line is written by rename: it is never cut off
	return d, nil
}

func (r *record) apply(l line) {
	switch {
	case l.Put != nil:
		r.entries[l.Put.Assignment.UID] = *l.Put
		delete(r.retired, l.Put.Assignment.UID)
		r.seq = max(r.seq, l.Put.Seq)
	case l.Retire != nil:
		delete(r.entries, l.Retire.UID)
		delete(r.seen, l.Retire.UID)
		r.retired[l.Retire.UID] = *l.Retire
	case l.Seen != nil:
		r.seen[l.Seen.UID] = *l.Seen
	}
	r.seq = max(r.seq, l.Seq)
}

// put writes entries and the highest sequence of their batch. They are recorded once sync
// has returned nil.
func (r *record) put(entries []entry, seq uint64) error {
	lines := make([]line, 0, len(entries)+1)
	for i := range entries {
		lines = append(lines, line{Put: &entries[i]})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(lines) == 0 && seq <= r.seq {
		return nil
	}
	lines = append(lines, line{Seq: seq})
	r.unsynced = true
	return r.appendLocked(lines)
}

// sync brings what was put to the disk. After a failure the kernel no longer knows which
// pages were meant, and would call the next sync a success: the record is written anew then.
func (r *record) sync() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.unsynced {
		return nil
	}
	var err error
	if r.doubtful {
		err = r.compactLocked()
	} else {
		err = r.file.Sync()
	}
	r.doubtful = err != nil
	if err != nil {
		return fmt.Errorf("sync the record: %w", err)
	}
	r.unsynced = false
	return nil
}

// retire drops a uid of which nothing is left, if it still is what was finished. It is not
// synced: a tombstone that comes back after a power cut is only carried out once more.
func (r *record) retire(e entry, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	uid := e.Assignment.UID
	if held, ok := r.entries[uid]; !ok || held.Seq != e.Seq {
		return nil
	}
	return r.appendLocked([]line{{Retire: &retired{uid, e.Seq, e.Assignment.Generation, now.UTC().Truncate(time.Second)}}})
}

// saw remembers what is known of a recorded uid, unsynced, when it differs.
func (r *record) saw(s seen) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, ok := r.seen[s.UID]
	if _, held := r.entries[s.UID]; !held || ok && old.Phase == s.Phase && old.Generation == s.Generation && slices.Equal(old.Addresses, s.Addresses) {
		return nil
	}
	return r.appendLocked([]line{{Seen: &s}})
}

// appendLocked writes lines; after an error neither the file nor the maps have them.
func (r *record) appendLocked(lines []line) error {
	var buf []byte
	for _, l := range lines {
		b, err := encodeLine(l)
		if err != nil {
			return err
		}
		buf = append(buf, b...)
	}
	_, err := r.file.WriteAt(buf, r.size)
	if err != nil {
		// What was half written is overwritten by the next append; a start before that finds a
		// torn tail.
		return errors.Join(fmt.Errorf("write the record: %w", err), r.file.Truncate(r.size))
	}
	r.size += int64(len(buf))
	r.lines += len(lines)
	for _, l := range lines {
		r.apply(l)
	}
	return nil
}

// compact rewrites the record when most of it is old.
func (r *record) compact(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := len(r.entries) + len(r.retired) + len(r.seen)
	if r.lines < 4*live+1000 {
		return nil
	}
	r.forgetOld(now)
	return r.compactLocked()
}

func (r *record) forgetOld(now time.Time) {
	maps.DeleteFunc(r.retired, func(_ string, x retired) bool { return now.Sub(x.At) > retiredFor })
	maps.DeleteFunc(r.seen, func(uid string, _ seen) bool { _, held := r.entries[uid]; return !held })
}

func (r *record) compactLocked() error {
	lines := []line{{Head: &head{Version: recordVersion, HostID: r.hostID}, Seq: r.seq}}
	for _, uid := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[uid]
		lines = append(lines, line{Put: &e})
		if s, ok := r.seen[uid]; ok {
			lines = append(lines, line{Seen: &s})
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(r.retired)) {
		x := r.retired[uid]
		lines = append(lines, line{Retire: &x})
	}
	var buf bytes.Buffer
	for _, l := range lines {
		b, err := encodeLine(l)
		if err != nil {
			return err
		}
		buf.Write(b)
	}
	err := renameio.WriteFile(r.path(), buf.Bytes(), 0o600)
	if err == nil {
		err = syncDir(r.dir)
	}
	if err != nil {
		return fmt.Errorf("rewrite the record: %w", err)
	}
	if r.file != nil {
		_ = r.file.Close() // replaced: nothing in it is needed
	}
	// Where it cannot be opened again, the nil file fails every append from here on, rather
	// than taking them into a file that no name leads to.
	r.file, err = os.OpenFile(r.path(), os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("reopen the record: %w", err)
	}
	r.size, r.lines = int64(buf.Len()), len(lines)
	return nil
}

// snapshot returns every entry, and the highest sequence recorded.
func (r *record) snapshot() (map[string]entry, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.entries), r.seq
}

// lastSeen returns what was known of a uid.
func (r *record) lastSeen(uid string) (seen, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.seen[uid]
	return s, ok
}

// known returns what the record has of a uid.
func (r *record) known(uid string) (e entry, held bool, gone retired, was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, held = r.entries[uid]
	gone, was = r.retired[uid]
	return
}

// restartSequences forgets all sequences: those of a stream that was made anew begin at 1.
func (r *record) restartSequences() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, e := range r.entries {
		e.Seq = 0
		r.entries[uid] = e
	}
	for uid, x := range r.retired {
		x.Seq = 0
		r.retired[uid] = x
	}
	r.seq = 0
	return r.compactLocked()
}

func (r *record) highest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq
}

func (r *record) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}
