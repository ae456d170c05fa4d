package local

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"proxyfleet/internal/backends"
)

// Delete implements [backends.Backend]. Its steps are "process.stop", "lock.remove",
// "run.remove", "log.remove", "config.remove", "state.remove" and "done". The state goes
// last, since it is what says that the rest is ours.
func (b *Backend) Delete(ctx context.Context, ref backends.Ref) error {
	const op = "delete"
	if err := ref.Validate(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p, f, err := b.own(op, ref)
	if err != nil {
		return err
	}
	if err := p.sweepTemporary(); err != nil {
		return wrapDisk(op, err, p.name)
	}
	if f.mark == nil {
		return backends.Step(ctx, "done")
	}
	if err := b.stop(ctx, p, ref); err != nil {
		return err
	}
	// A child that another agent started just before it died may not have the lock yet. It
	// checks, once it has, that the file is still there: so the file goes, and then
	// whoever got the lock before that.
	lock, err := os.Open(p.file(extLock))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return backends.Wrap(backends.ErrTransient, op, err, "the lock of proxy %s", ref.Proxy)
	}
	if err == nil {
		defer lock.Close()
	}
	for _, file := range []struct{ label, ext string }{
		{"lock.remove", extLock}, {"run.remove", extRun}, {"log.remove", extLog}, {"config.remove", extConf}, {"state.remove", extState},
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := backends.Step(ctx, file.label); err != nil {
			return err
		}
		if file.ext == extState {
			if err := p.sweepTemporary(); err != nil { // what a killed child was writing
				return wrapDisk(op, err, p.name)
			}
		}
		err := remove(p.file(file.ext))
		if file.ext == extLog {
			err = errors.Join(err, remove(p.file(extOld)))
		}
		if err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "cannot remove %s; it is still there", p.file(file.ext))
		}
		if file.ext != extLock {
			continue
		}
		if lock != nil {
			if err := p.stopHolder(ctx, lock, ref.UID); err != nil {
				return wrapHolder(op, ref, err)
			}
		}
		if err := p.killStrays(ctx, ref.UID); err != nil {
			return backends.Wrap(backends.ErrTransient, op, err, "processes of proxy %s are still there", ref.Proxy)
		}
	}
	return backends.Step(ctx, "done")
}
