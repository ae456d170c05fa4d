//go:build pve || proxmox_real

package pvefake

import (
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// TestTheFakeAnswersAsARealNodeDid builds, for every recorded answer, the
// state that it was recorded in, sends the same request and compares status,
// reason, body and the end of the task.
func TestTheFakeAnswersAsARealNodeDid(t *testing.T) {
	n := 0
	all := loadCaptures(t)
	for name := range notModelled {
		if all.byName[name] == nil {
			t.Errorf("%s is listed as not modelled and was never recorded", name)
		}
	}
	for _, rec := range all.replay {
		if _, skip := notModelled[rec.name]; skip {
			continue
		}
		n++
		t.Run(rec.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replay(t, all, rec) })
		})
	}
	if n < 550 {
		t.Errorf("only %d recorded answers were replayed; too many are listed as not modelled", n)
	}
}

func replay(t *testing.T, all recordings, rec *capture) {
	s := newScene(t, all, rec)
	req := s.request(rec)
	resp, err := s.c.RoundTripper().RoundTrip(req)
	if rec.Status == 0 {
		if err == nil {
			t.Fatalf("got %s, want a closed connection", resp.Status)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != rec.Status {
		t.Fatalf("got %s %s, want %d %s", resp.Status, body, rec.Status, rec.Reason)
	}
	if _, reason, _ := strings.Cut(resp.Status, " "); oneLine(reason) != oneLine(rec.Reason) {
		t.Errorf("reason: got %q, want %q", reason, rec.Reason)
	}
	s.compare(rec, body)
	if !rec.hasTask {
		return
	}
	if err := s.c.WaitIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	var data struct{ Data *string }
	_ = json.Unmarshal(body, &data)
	if data.Data == nil {
		return // the recording followed another call's task
	}
	for _, task := range s.c.Tasks() {
		if task.UPID != *data.Data {
			continue
		}
		if task.Exit != rec.exit && !sameButQemu(task.Exit, rec.exit) {
			t.Errorf("task ended %q, want %q; log %q", task.Exit, rec.exit, task.Log)
		}
		if task.Type != rec.taskTyp {
			t.Errorf("task type %q, want %q", task.Type, rec.taskTyp)
		}
		got, want := comparableLog(task.Log), comparableLog(rec.log)
		if len(rec.log) > 0 && !slices.Equal(got, want) {
			t.Errorf("task log:\n got %q\nwant %q", got, want)
		}
		return
	}
	t.Errorf("no task %s", *data.Data)
}

// toolLineRE are log lines of programs that a node runs, and progress.
var (
	toolLineRE = regexp.MustCompile(`^(qemu-system-x86_64: |kvm: |Formatting |transferred |clone \d+/|Wide character )`)
	madeUpRE   = regexp.MustCompile(`pveupload-[0-9a-f]+|file size is: \d+|got '[0-9a-f]{64}'|at byte \d+| -r \d+K`)
)

// comparableLog is a task log without what differs from run to run.
func comparableLog(log []string) []string {
	var out []string
	for _, l := range log {
		if !toolLineRE.MatchString(l) {
			out = append(out, madeUpRE.ReplaceAllString(l, ""))
		}
	}
	return out
}

var (
	bandwidthRE = regexp.MustCompile(` -r \d+K`)
	sha256RE    = regexp.MustCompile(`got '[0-9a-f]{64}'`)
)

// sameButQemu ignores the bandwidth option of a recorded qemu-img call and the
// checksum of a file that was not recorded.
func sameButQemu(got, want string) bool {
	got = sha256RE.ReplaceAllString(got, "got #")
	return sha256RE.ReplaceAllString(bandwidthRE.ReplaceAllString(want, ""), "got #") == got
}
