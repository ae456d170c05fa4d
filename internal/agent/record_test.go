package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"proxyfleet/internal/bus"
)

func someEntry(uid string, seq uint64) entry {
	return entry{bus.Assignment{Proxy: "p", UID: uid, Generation: 1, Desired: bus.DesiredRunning,
		Spec: &bus.Spec{Auth: &bus.Auth{Username: "u", Password: `p"a s\s`}}}, seq}
}

func mustOpen(t testing.TB, dir string) (*record, damage) {
	t.Helper()
	r, d, err := openRecord(dir, testHostID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.close() })
	return r, d
}

func TestTheRecordSurvivesAReopen(t *testing.T) {
	dir := t.TempDir()
	r, d := mustOpen(t, dir)
	if !d.Missing {
		t.Error("a new record is not said to be missing")
	}
	a, b := someEntry("a", 3), someEntry("b", 4)
	if err := r.put([]entry{a, b}, 9); err != nil {
		t.Fatal(err)
	}
	if err := r.saw(seen{UID: "a", Generation: 1, Phase: bus.PhaseRunning}); err != nil {
		t.Fatal(err)
	}
	if err := r.retire(b, time.Now()); err != nil {
		t.Fatal(err)
	}
	r, d = mustOpen(t, dir)
	if d != (damage{}) {
		t.Errorf("damage: got %+v, want none", d)
	}
	got, seq := r.snapshot()
	if diff := cmp.Diff(map[string]entry{"a": a}, got); diff != "" || seq != 9 {
		t.Errorf("seq %d, want 9; entries differ:\n%s", seq, diff)
	}
	if s, ok := r.lastSeen("a"); !ok || s.Phase != bus.PhaseRunning {
		t.Errorf("seen: got %v", s)
	}
	if _, _, gone, was := r.known("b"); !was || gone.Seq != 4 {
		t.Errorf("b is not known as retired")
	}
}

func TestTheRecordIsForItsOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	r, _ := mustOpen(t, dir)
	for range 2 {
		info, err := os.Stat(r.path())
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("mode: got %v, want 0600, for it has passwords", info.Mode())
		}
		if err := r.put([]entry{someEntry("a", 1)}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := openRecord(dir, "another"); err == nil {
		t.Error("the record of another host id was opened")
	}
}

func TestACutTailIsToleratedAndDamageInTheMiddleIsNot(t *testing.T) {
	dir := t.TempDir()
	r, _ := mustOpen(t, dir)
	for n := range 3 {
		if err := r.put([]entry{someEntry(fmt.Sprint("u", n), uint64(n+1))}, uint64(n+1)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(r.path())
	if err != nil {
		t.Fatal(err)
	}
	cut := bytes.LastIndex(whole, []byte(`{"put"`)) // the third put and its sequence follow
	middle := bytes.Index(whole, []byte(`"u0"`))
	flipped := bytes.Clone(whole)
	flipped[middle+1] ^= 1
	for name, c := range map[string]struct {
		content []byte
		want    damage
		entries int
	}{
		"whole":                  {whole, damage{}, 3},
		"cut in the last put":    {whole[:cut+20], damage{Torn: true}, 2},
		"cut in its checksum":    {whole[:cut-3], damage{Torn: true}, 2},
		"zeroes at the end":      {append(bytes.Clone(whole), make([]byte, 100)...), damage{Torn: true}, 3},
		"a flipped bit inside":   {flipped, damage{Corrupt: 1}, 2},
		"without its first line": {whole[bytes.IndexByte(whole, '\n')+1:], damage{Corrupt: 1}, 3},
		"empty":                  {nil, damage{Missing: true}, 0},
		"nothing but garbage":    {[]byte("garbage"), damage{Torn: true, Missing: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, recordFile), c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			r, d := mustOpen(t, dir)
			if d != c.want {
				t.Errorf("damage: got %+v, want %+v", d, c.want)
			}
			if got, _ := r.snapshot(); len(got) != c.entries {
				t.Errorf("%d entries, want %d", len(got), c.entries)
			}
			if err := r.put([]entry{someEntry("new", 9)}, 9); err != nil {
				t.Fatal(err)
			}
			r, d = mustOpen(t, dir)
			if got, _ := r.snapshot(); len(got) != c.entries+1 || d != (damage{}) {
				t.Errorf("after a write: %d entries with damage %+v, want %d without", len(got), d, c.entries+1)
			}
		})
	}
}

func TestCompactionKeepsWhatCounts(t *testing.T) {
	r, _ := mustOpen(t, t.TempDir())
	for n := range 2000 {
		if err := r.saw(seen{}); err != nil { // not recorded: not kept
			t.Fatal(err)
		}
		e := someEntry("a", uint64(n+1))
		r.mu.Lock()
		err := r.appendLocked([]line{{Put: &e}})
		r.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	before := r.size
	if err := r.compact(time.Now()); err != nil {
		t.Fatal(err)
	}
	if r.size*10 > before {
		t.Errorf("%d bytes after compaction, %d before", r.size, before)
	}
	if err := r.put([]entry{someEntry("b", 3000)}, 3000); err != nil {
		t.Fatal(err)
	}
	r, _ = mustOpen(t, r.dir)
	if got, seq := r.snapshot(); got["a"].Seq != 2000 || got["b"].Seq != 3000 || seq != 3000 {
		t.Errorf("got a %d, b %d, seq %d", got["a"].Seq, got["b"].Seq, seq)
	}
}

func TestRetiredUIDsAreForgottenAfterAWhile(t *testing.T) {
	r, _ := mustOpen(t, t.TempDir())
	e := someEntry("a", 1)
	if err := r.put([]entry{e}, 1); err != nil {
		t.Fatal(err)
	}
	if err := r.retire(e, time.Now().Add(-retiredFor-time.Minute)); err != nil {
		t.Fatal(err)
	}
	r, _ = mustOpen(t, r.dir)
	if len(r.retired) != 0 {
		t.Errorf("still there: %v", r.retired)
	}
}

func TestAFailedWriteLeavesNoTrace(t *testing.T) {
	r, _ := mustOpen(t, t.TempDir())
	good := r.file
	readOnly, err := os.Open(r.path())
	if err != nil {
		t.Fatal(err)
	}
	r.file = readOnly
	if err := r.put([]entry{someEntry("a", 1)}, 1); err == nil {
		t.Fatal("a write to a file that cannot be written succeeded")
	}
	if got, seq := r.snapshot(); len(got) != 0 || seq != 0 {
		t.Errorf("it is known all the same: %v, seq %d", got, seq)
	}
	_ = readOnly.Close()
	r.file = good
	if err := r.put([]entry{someEntry("a", 1)}, 1); err != nil {
		t.Fatal(err)
	}
}

// Whatever is put and retired, and wherever the file is cut afterwards, what is read again
// is a state that the record was in.
func TestACutRecordIsAnEarlierRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "record")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		r, _, err := openRecord(dir, testHostID)
		if err != nil {
			t.Fatal(err)
		}
		states := []string{fmt.Sprint(map[string]entry{})}
		for n := range rapid.IntRange(0, 6).Draw(t, "operations") {
			uid := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "uid")
			if e, held, _, _ := r.known(uid); held && rapid.Bool().Draw(t, "retire") {
				err = r.retire(e, time.Now())
			} else {
				err = r.put([]entry{someEntry(uid, uint64(n+1))}, uint64(n+1))
			}
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, summary(r))
		}
		_ = r.close()
		raw, err := os.ReadFile(r.path())
		if err != nil {
			t.Fatal(err)
		}
		header := bytes.IndexByte(raw, '\n') + 1
		cut := rapid.IntRange(header, len(raw)).Draw(t, "cut")
		if err := os.WriteFile(r.path(), raw[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		r, d, err := openRecord(dir, testHostID)
		if err != nil || d.Lost() {
			t.Fatalf("damage %+v, %v", d, err)
		}
		got := summary(r)
		_ = r.close()
		for _, s := range states {
			if s == got {
				return
			}
		}
		t.Errorf("got %s, which it never was; it was %s", got, strings.Join(states, "; "))
	})
}

func summary(r *record) string {
	entries, _ := r.snapshot()
	seqs := map[string]uint64{}
	for uid, e := range entries {
		seqs[uid] = e.Seq
	}
	return fmt.Sprint(seqs)
}

func FuzzRecord(f *testing.F) {
	l, err := encodeLine(line{Put: &entry{Seq: 1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(l)
	f.Add([]byte("00000000 {}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := &record{hostID: testHostID, entries: map[string]entry{}, retired: map[string]retired{}, seen: map[string]seen{}}
		_, _ = r.replay(raw)
		if len(r.entries) > bytes.Count(raw, []byte("\n")) {
			t.Errorf("%d entries from %d lines", len(r.entries), bytes.Count(raw, []byte("\n")))
		}
	})
}
