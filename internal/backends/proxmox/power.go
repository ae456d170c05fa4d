package proxmox

import (
	"context"
	"errors"
	"strings"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// hibernated is the lock of a VM whose memory is on disk. Starting it resumes it; its
// configuration cannot be changed.
const hibernated = "suspended"

// powered brings a VM to what is desired. It looks after each thing that it does, and ends
// when there is nothing left to do.
func (b *Backend) powered(ctx context.Context, j *job, f found) (found, error) {
	const most = 6 // resume, stop, start and so on; more is a VM that does not do as it is told
	for range most {
		s, err := b.status(ctx, &f)
		if err != nil {
			return f, err
		}
		act := next(j.Desired, s, f.mark.Generation != j.Generation)
		if act == actNone && j.Desired == backends.Running {
			off, err := b.agentOff(ctx, f)
			if err != nil {
				return f, err
			}
			if off {
				act = actRestart
			}
		}
		if act == actNone {
			return f, nil
		}
		if f, err = b.act(ctx, j, f, act); err != nil {
			return f, err
		}
	}
	s, err := b.status(ctx, &f)
	if err != nil {
		return f, err
	}
	return f, backends.Errorf(backends.ErrTransient, "bring VM to "+string(j.Desired), "%s does not stay as asked: it is %s (%s)", f, s.Status, s.QMP)
}

type action int

const (
	actNone action = iota
	actWait
	actStart
	actResume
	actShutdown
	actStop
	actRestart
)

// next is what brings a VM nearer to what is desired. changed says that its configuration
// has to be written, which a VM that hibernates does not allow.
func next(desired backends.Desired, s pve.VMStatus, changed bool) action {
	running := s.Status == "running"
	if desired == backends.Stopped {
		switch {
		case !running && s.Lock == hibernated && changed:
			return actStart
		case !running:
			return actNone
		case s.QMP == "running":
			return actShutdown
		}
		return actStop // it cannot answer
	}
	switch {
	case !running:
		return actStart
	case s.QMP == "paused" || s.QMP == "suspended" || s.QMP == "io-error":
		return actResume
	case s.QMP == "prelaunch" || s.QMP == "inmigrate" || s.QMP == "postmigrate" || s.QMP == "finish-migrate":
		return actWait
	case s.QMP == "internal-error" || s.QMP == "guest-panicked" || s.QMP == "shutdown":
		return actStop
	}
	return actNone
}

func (b *Backend) act(ctx context.Context, j *job, f found, what action) (found, error) {
	switch what {
	case actWait:
		return f, classify("wait for VM", sleep(ctx, b.poll), "%s is being started or migrated", f)
	case actStart:
		return b.start(ctx, j, f)
	case actResume:
		j.step("resuming VM")
		return b.resume(ctx, f)
	case actRestart:
		j.step("restarting VM for its guest agent")
		f, err := b.configureAgent(ctx, f)
		if err != nil {
			return f, err
		}
		return b.down(ctx, f, "vm.shutdown", b.shutdown)
	case actShutdown:
		j.step("shutting down")
		return b.down(ctx, f, "vm.shutdown", b.shutdown)
	default:
		j.step("stopping VM")
		return b.down(ctx, f, "vm.stop", b.api.Stop)
	}
}

func (b *Backend) shutdown(ctx context.Context, node string, vmid int) (pve.UPID, error) {
	return b.api.Shutdown(ctx, node, vmid, int(b.conf.ShutdownTimeout/time.Second))
}

func (b *Backend) start(ctx context.Context, j *job, f found) (found, error) {
	f, err := b.unlockedBut(ctx, f, hibernated)
	if err != nil {
		return f, err
	}
	if f.conf["lock"] != hibernated {
		if err := b.haveSeed(ctx, j, f); err != nil {
			return f, err
		}
	}
	j.step("starting VM")
	if err := backends.Step(ctx, "vm.start"); err != nil {
		return f, err
	}
	task, err := b.api.Start(ctx, f.vm.Node, f.vm.ID)
	if err := b.finish(ctx, "start VM", f, task, err, "already running"); err != nil {
		return f, err
	}
	return b.await(ctx, f, "running")
}

// resume lets a VM go on that somebody, or an error of its disk, has paused.
func (b *Backend) resume(ctx context.Context, f found) (found, error) {
	f, err := b.unlocked(ctx, f)
	if err != nil {
		return f, err
	}
	if err := backends.Step(ctx, "vm.resume"); err != nil {
		return f, err
	}
	task, err := b.api.Resume(ctx, f.vm.Node, f.vm.ID)
	if err := b.finish(ctx, "resume VM", f, task, err); err != nil {
		return f, err
	}
	s, err := b.status(ctx, &f)
	if err == nil && s.QMP == "io-error" {
		return f, backends.Errorf(backends.ErrTransient, "resume VM", "%s is paused by an error of its disk (io-error), again after it was resumed; its storage may be full or away", f)
	}
	return f, err
}

// down ends a VM by call, and waits until it is stopped.
func (b *Backend) down(ctx context.Context, f found, label string, call func(context.Context, string, int) (pve.UPID, error)) (found, error) {
	f, err := b.unlocked(ctx, f)
	if err != nil {
		return f, err
	}
	if err := backends.Step(ctx, label); err != nil {
		return f, err
	}
	task, err := call(ctx, f.vm.Node, f.vm.ID)
	if err := b.finish(ctx, "stop VM", f, task, err, "not running"); err != nil {
		return f, err
	}
	return b.await(ctx, f, "stopped")
}

// finish follows a task about a VM. An outcome that says one of fine is what was wanted; of
// a task that nobody knows any more, the VM's own status tells.
func (b *Backend) finish(ctx context.Context, op string, f found, task pve.UPID, err error, fine ...string) error {
	if err == nil {
		var outcome pve.Outcome
		outcome, err = b.api.Follow(ctx, task)
		b.warned(ctx, op, f.vm.ID, outcome)
	}
	if err == nil || pve.IsNoTask(err) {
		return nil
	}
	var failed *pve.TaskError
	for _, text := range fine {
		if errors.As(err, &failed) && strings.Contains(failed.Outcome.Text, text) {
			return nil
		}
	}
	return classify(op, err, "%s", f)
}

// await waits until a VM's status is what a task has brought it to. Under HA the task only
// asks for it.
func (b *Backend) await(ctx context.Context, f found, status string) (found, error) {
	deadline := time.Now().Add(startTimeout)
	for {
		s, err := b.status(ctx, &f)
		if err != nil || s.Status == status {
			return f, err
		}
		if !time.Now().Before(deadline) {
			by := ""
			if s.Managed {
				by = "; it is managed by HA, see `ha-manager status`"
			}
			return f, backends.Errorf(backends.ErrTransient, "wait for VM", "%s is %s, not %s, %s after that was asked for%s", f, s.Status, status, startTimeout, by)
		}
		if err := sleep(ctx, b.poll); err != nil {
			return f, classify("wait for VM", err, "%s is not %s yet", f, status)
		}
	}
}

// status reads what a VM does, where it is now.
func (b *Backend) status(ctx context.Context, f *found) (pve.VMStatus, error) {
	for range 2 {
		s, err := b.api.Status(ctx, f.vm.Node, f.vm.ID)
		if err == nil {
			return s, nil
		}
		if !pve.IsNoVM(err) {
			return s, b.unreadable(ctx, f.vm, err)
		}
		if *f, err = b.verify(ctx, *f); err != nil { // finds it again
			return s, err
		}
	}
	return pve.VMStatus{}, backends.Errorf(backends.ErrTransient, "read VM", "%s is migrating; it is looked for again", *f)
}

// agentOff reports a VM that runs without a channel for its guest agent, because the option
// was off when it was started.
func (b *Backend) agentOff(ctx context.Context, f found) (bool, error) {
	conf, err := b.api.Config(ctx, f.vm.Node, f.vm.ID, true)
	if pve.IsNoVM(err) {
		return false, backends.Errorf(backends.ErrTransient, "read VM", "%s is migrating; it is looked for again", f)
	}
	if err != nil {
		return false, b.unreadable(ctx, f.vm, err)
	}
	return !hasAgent(conf["agent"]), nil
}

func (b *Backend) configureAgent(ctx context.Context, f found) (found, error) {
	f, err := b.unlocked(ctx, f)
	if err != nil || hasAgent(f.conf["agent"]) {
		return f, err
	}
	if err := backends.Step(ctx, "vm.agent"); err != nil {
		return f, err
	}
	err = b.api.Configure(ctx, f.vm.Node, f.vm.ID, f.conf["digest"], map[string]string{"agent": agentOn(f.conf["agent"])})
	return f, classify("configure VM", err, "the guest agent of %s cannot be switched on", f)
}
