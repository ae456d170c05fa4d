package pve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// UPID names a task: "UPID:node:pid:pstart:starttime:type:id:user:". It stays valid after
// the task's end, until its node's log of tasks is pruned.
type UPID string

// Node is where the task runs; empty where malformed.
func (u UPID) Node() string { return u.field(1) }

// Type is what it does: "qmclone", "qmstart", …
func (u UPID) Type() string { return u.field(5) }

// User is who started it: "user@realm", or "user@realm!tokenid".
func (u UPID) User() string { return u.field(7) }

func (u UPID) field(n int) string {
	parts := strings.Split(string(u), ":")
	if len(parts) < 9 || parts[0] != "UPID" {
		return ""
	}
	return parts[n]
}

// task carries out a call that starts a task.
func (c *Client) task(ctx context.Context, k call) (UPID, error) {
	var id text
	err := c.do(ctx, k, &id)
	return UPID(id), err
}

// Outcome is how a task ended.
type Outcome struct {
	// Text is the task's own word: "OK", "WARNINGS: 2", or why it failed.
	Text string
	// Log has the last lines of a task that failed, or the warnings of one that warned.
	Log []string
}

// Failed reports an end that is no success. Warnings are one.
func (o Outcome) Failed() bool { return o.Text != "OK" && !o.Warned() }

// Warned reports a success whose log has warnings.
func (o Outcome) Warned() bool { return strings.HasPrefix(o.Text, "WARNINGS: ") }

// TaskError is a task that failed.
type TaskError struct {
	UPID    UPID
	Outcome Outcome
}

func (e *TaskError) Error() string {
	s := fmt.Sprintf("task %s on node %s failed: %s", e.UPID.Type(), e.UPID.Node(), e.Outcome.Text)
	if len(e.Outcome.Log) > 0 {
		s += "; its log ends: " + strings.Join(e.Outcome.Log, " | ")
	}
	return s
}

// TaskStatus reads how a task stands; done is false while it runs.
func (c *Client) TaskStatus(ctx context.Context, id UPID) (done bool, word string, err error) {
	if id.Node() == "" {
		return false, "", fmt.Errorf("%q is no task", string(id))
	}
	var s struct{ Status, ExitStatus text }
	if err := c.do(ctx, call{method: http.MethodGet, path: taskPath(id, "status")}, &s); err != nil {
		return false, "", err
	}
	return s.Status != "running", string(s.ExitStatus), nil
}

const (
	taskPollMax = 3 * time.Second
	// taskBlips is how many polls in a row may fail before following a task ends with an
	// error: a restarted pveproxy is away for a second or two.
	taskBlips = 3
	logLines  = 10
)

// Follow waits for the end of a task, however long that takes; the caller's context bounds
// it. The error is a *TaskError for a task that failed; IsNoTask for one that nobody knows
// any more, whose outcome has to be looked for in what it should have done; anything else
// means that the task cannot be watched, and it runs on. An empty id is a task that is
// over.
func (c *Client) Follow(ctx context.Context, id UPID) (Outcome, error) {
	return c.FollowEach(ctx, id, func() {})
}

// FollowEach is Follow that calls each after every look at a task that still runs.
func (c *Client) FollowEach(ctx context.Context, id UPID, each func()) (Outcome, error) {
	if id == "" {
		return Outcome{Text: "OK"}, nil
	}
	pause, blips := c.taskPoll, 0
	for {
		done, word, err := c.TaskStatus(ctx, id)
		switch {
		case err != nil && (ctx.Err() != nil || !passing(err)):
			return Outcome{}, err
		case err != nil:
			if blips++; blips >= taskBlips {
				return Outcome{}, err
			}
		case done:
			return c.ended(ctx, id, word)
		default:
			blips = 0
			each()
		}
		select {
		case <-ctx.Done():
			return Outcome{}, fmt.Errorf("task %s on node %s: %w", id.Type(), id.Node(), context.Cause(ctx))
		case <-time.After(pause):
		}
		pause = min(pause*3/2, taskPollMax)
	}
}

// passing reports an error that the next poll may not meet.
func passing(err error) bool {
	var n *NoAnswer
	return IsPassedOn(err) || errors.As(err, &n) && n.Trouble != Untrusted
}

// ended reads the log where it tells something.
func (c *Client) ended(ctx context.Context, id UPID, word string) (Outcome, error) {
	o := Outcome{Text: word}
	if word == "OK" {
		return o, nil
	}
	lines, err := c.TaskLog(ctx, id)
	if err != nil {
		lines = []string{"(its log cannot be read: " + err.Error() + ")"}
	}
	if o.Warned() {
		for _, l := range lines {
			if strings.HasPrefix(l, "WARN") {
				o.Log = append(o.Log, l)
			}
		}
		return o, nil
	}
	o.Log = lines[max(len(lines)-logLines, 0):]
	return o, &TaskError{UPID: id, Outcome: o}
}

// TaskLog returns the lines of a task's log, without those that only count progress.
func (c *Client) TaskLog(ctx context.Context, id UPID) ([]string, error) {
	lines, err := c.taskLog(ctx, id)
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, transferred) }), err
}

// transferred begins a line that counts progress: "transferred 42.7 MiB of 1.0 GiB (4.17%)".
const transferred = "transferred "

// TaskPercent is how far a task that copies a disk says that it is; 0 where it does not.
func (c *Client) TaskPercent(ctx context.Context, id UPID) (int, error) {
	lines, err := c.taskLog(ctx, id)
	for i := len(lines) - 1; i >= 0; i-- {
		if !strings.HasPrefix(lines[i], transferred) {
			continue
		}
		_, rest, _ := strings.Cut(lines[i], "(")
		number, _, ok := strings.Cut(rest, "%)")
		if f, bad := strconv.ParseFloat(number, 64); ok && bad == nil {
			return min(max(int(f), 0), 100), err
		}
	}
	return 0, err
}

func (c *Client) taskLog(ctx context.Context, id UPID) ([]string, error) {
	// The log is read from its start, and has a line for each per cent.
	const most = 500
	var items []struct{ T text }
	k := call{method: http.MethodGet, path: taskPath(id, "log"), query: url.Values{"limit": {strconv.Itoa(most)}}}
	if err := c.do(ctx, k, &items); err != nil {
		return nil, err
	}
	var out []string
	for _, i := range items {
		line := strings.TrimSpace(string(i.T))
		if line == "" {
			continue
		}
		if len(line) > 300 {
			line = line[:300] + " …"
		}
		out = append(out, line)
	}
	return out, nil
}

// StopTask ends a task. One that is over is no error.
func (c *Client) StopTask(ctx context.Context, id UPID) error {
	err := c.do(ctx, call{method: http.MethodDelete, path: path("nodes", id.Node(), "tasks", string(id))}, nil)
	if IsNoTask(err) {
		return nil
	}
	return err
}

// RunningTasks are tasks of one type that run anywhere in the cluster, as far as the token
// may see; its own it always may.
func (c *Client) RunningTasks(ctx context.Context, kind string) ([]UPID, error) {
	var items []struct {
		UPID, Type text
		EndTime    number
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: "/cluster/tasks"}, &items); err != nil {
		return nil, err
	}
	var out []UPID
	for _, i := range items {
		if string(i.Type) == kind && i.EndTime == 0 {
			out = append(out, UPID(i.UPID))
		}
	}
	return out, nil
}

func taskPath(id UPID, what string) string {
	return path("nodes", id.Node(), "tasks", string(id), what)
}
