package pvefake

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TaskFault changes how tasks end.
type TaskFault struct {
	Type string // qmclone, qmstart, qmconfig, resize, qmdestroy, imgcopy, …; empty: any
	ID   string // the task's id, for VMs the VMID (of the template for qmclone); empty: any
	// Exit is the exit status in place of the task's own: an error text, or
	// "WARNINGS: n", which is a success. Empty leaves it, for Hang alone.
	Exit string
	// Late lets the task do its work before it ends with Exit. Without it an
	// error leaves nothing done, save what the task undoes itself.
	Late bool
	// Hang holds the task, before its work, until the channel closes.
	Hang <-chan struct{}
	// Die ends the worker at its first wait with nothing undone, as a power
	// failure does: a clone stays locked, its lock file is free again. The exit
	// status is "unexpected status".
	Die   bool
	Times int // how many tasks; 0: all from now on
}

// InjectTask adds a fault for tasks that begin from now on; the function
// returned takes it back.
func (c *Cluster) InjectTask(f TaskFault) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &f
	c.faults = append(c.faults, p)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.faults = slices.DeleteFunc(c.faults, func(x *TaskFault) bool { return x == p })
	}
}

// Task is what became of a task.
type Task struct {
	UPID, Node, Type, ID, User string
	Running                    bool
	Exit                       string // OK, WARNINGS: n or the error; empty while it runs
	Log                        []string
}

// Tasks are all tasks of the cluster, oldest first.
func (c *Cluster) Tasks() []Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Task, 0, len(c.taskList))
	for _, t := range c.taskList {
		out = append(out, Task{UPID: t.upid, Node: t.node, Type: t.typ, ID: t.id, User: t.who.String(),
			Running: t.exit == "", Exit: t.exit, Log: slices.Clone(t.log)})
	}
	return out
}

// ForgetTask prunes a finished task, as a node does with old ones.
func (c *Cluster) ForgetTask(upid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taskList = slices.DeleteFunc(c.taskList, func(t *task) bool { return t.upid == upid })
	delete(c.tasks, upid)
}

// WaitIdle waits until no task runs. It is for tests that look at the end
// state; tasks held by a fault never end by themselves.
func (c *Cluster) WaitIdle(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if !slices.ContainsFunc(c.taskList, func(t *task) bool { return t.exit == "" }) {
			return nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

type task struct {
	c                   *Cluster
	upid, node, typ, id string
	who                 caller
	pid, pstart         int
	start, end          time.Time
	exit                string // empty while it runs
	log                 []string
	warnings            int
	fault               *TaskFault
	ctx                 context.Context
	stop                context.CancelFunc
}

// errStopped ends a task that somebody stopped. Proxmox reports the signal.
var errStopped = errors.New("interrupted by signal")

// fork starts a task and returns its UPID. run holds the mutex except while it
// waits; what it returns is the exit status. The caller holds the mutex.
func (c *Cluster) fork(who caller, node, typ, id string, run func(*task) error) (string, error) {
	if c.ctx.Err() != nil {
		return "", die("shutting down")
	}
	c.seq++
	now := c.clock.now()
	t := &task{c: c, node: node, typ: typ, id: id, who: who, start: now,
		pid: 0x500 + c.seq, pstart: 0x3EE00 + int(now.Sub(c.clock.start)/(10*time.Millisecond))}
	t.upid = fmt.Sprintf("UPID:%s:%08X:%08X:%08X:%s:%s:%s:", node, t.pid, t.pstart, now.Unix(), typ, id, who)
	t.ctx, t.stop = context.WithCancel(c.ctx)
	t.fault = c.takeFault(typ, id)
	c.tasks[t.upid] = t
	c.taskList = append(c.taskList, t)
	c.work.Add(1)
	go func() {
		defer c.work.Done()
		defer t.stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		t.finish(t.run(run))
	}()
	return t.upid, nil
}

func (c *Cluster) takeFault(typ, id string) *TaskFault {
	for i, f := range c.faults {
		if f.Type != "" && f.Type != typ || f.ID != "" && f.ID != id {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				c.faults = slices.Delete(c.faults, i, i+1)
			}
		}
		return f
	}
	return nil
}

func (t *task) run(run func(*task) error) error {
	f := t.fault
	if f != nil && f.Hang != nil {
		t.c.mu.Unlock()
		select {
		case <-f.Hang:
		case <-t.ctx.Done():
		}
		t.c.mu.Lock()
		if t.ctx.Err() != nil {
			return errStopped
		}
	}
	if f != nil && f.Die {
		_ = run(t.failing())
		return errors.New("unexpected status")
	}
	if f != nil && f.Exit != "" && !f.Late && !strings.HasPrefix(f.Exit, "WARNINGS") {
		// The task undoes what its call prepared, as a failing one does.
		_ = run(t.failing())
		return errors.New(f.Exit)
	}
	err := run(t)
	if f != nil && f.Exit != "" && err == nil {
		if n, ok := strings.CutPrefix(f.Exit, "WARNINGS: "); ok {
			t.warnings, _ = strconv.Atoi(n)
			return nil
		}
		return errors.New(f.Exit)
	}
	return err
}

// failing makes t fail at its first wait.
func (t *task) failing() *task {
	t.stop()
	return t
}

// died tells whether the worker is gone and must not clean up.
func (t *task) died() bool { return t.fault != nil && t.fault.Die }

func (t *task) finish(err error) {
	t.end = t.c.clock.now()
	switch {
	case t.died():
		t.exit = err.Error()
	case err != nil:
		t.exit = oneLine(err.Error())
		t.logf("TASK ERROR: %s", t.exit)
	case t.warnings > 0:
		t.exit = fmt.Sprintf("WARNINGS: %d", t.warnings)
		t.logf("TASK WARNINGS: %d", t.warnings)
	default:
		t.exit = "OK"
		t.logf("TASK OK")
	}
	t.c.notify()
}

// logf adds lines to the log; a text of several lines is several of them.
func (t *task) logf(format string, args ...any) {
	t.log = append(t.log, strings.Split(fmt.Sprintf(format, args...), "\n")...)
}

func (t *task) warnf(format string, args ...any) {
	t.logf("WARN: "+format, args...)
	t.warnings++
}

// sleep gives up the mutex for d of the nodes' time, or fails when the task is
// stopped.
func (t *task) sleep(d time.Duration) error {
	if t.c.sleep(t.ctx, d) != nil {
		return errStopped
	}
	return nil
}

// SetTaskDuration sets how long the work of a task type takes, in the nodes'
// time: qmclone, qmstart, qmstop, qmshutdown, resize, qmdestroy, qmcreate,
// qmigrate. By default a full clone takes 4 s and everything else under 1 s.
func (c *Cluster) SetTaskDuration(typ string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.durations[typ] = d
}

func (c *Cluster) took(typ string, def time.Duration) time.Duration {
	if d, ok := c.durations[typ]; ok {
		return d
	}
	return def
}
