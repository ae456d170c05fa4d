package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"proxyfleet/internal/backends"
)

// found is what the files of one name say.
type found struct {
	state *state
	conf  *conf
	lock  bool
	mark  *backends.Mark // of any of the files
}

// errForeign says that a file is somebody else's.
var errForeign = errors.New("not ours")

// look reads the files of one name. uid may be empty in a listing: then any uid of one
// mark will do. A file that is not ours is errForeign.
func (b *Backend) look(p paths, uid string) (found, error) {
	var out found
	for _, ext := range marked {
		var m *backends.Mark
		var there bool
		var err error
		switch ext {
		case extState:
			var s state
			if there, err = get(p.file(ext), &s); there && err == nil {
				out.state, m = &s, &s.Mark
			}
		case extConf:
			var c conf
			if there, err = get(p.file(ext), &c); there && err == nil {
				out.conf, m = &c, &c.Mark
			}
		case extLock:
			var l lockFile
			if there, err = get(p.file(ext), &l); there && err == nil {
				out.lock, m = true, &l.Mark
			}
		}
		if err != nil {
			return out, err
		}
		if m == nil {
			continue
		}
		if !m.Owned(b.owner) || (uid != "" && m.UID != uid) || backends.InstanceName(m.UID) != p.name {
			return out, fmt.Errorf("%w: %s", errForeign, p.file(ext))
		}
		out.mark = m
	}
	if out.mark == nil {
		for _, ext := range []string{extRun, extLog, extOld} {
			if _, err := os.Lstat(p.file(ext)); err == nil {
				return out, fmt.Errorf("%w: %s", errForeign, p.file(ext))
			}
		}
	}
	return out, nil
}

// own is look for one ref, with the error that the contract asks for.
func (b *Backend) own(op string, ref backends.Ref) (paths, found, error) {
	p := paths{b.dir, backends.InstanceName(ref.UID)}
	f, err := b.look(p, ref.UID)
	if errors.Is(err, errForeign) {
		return p, f, backends.Wrap(backends.ErrConflict, op, err, "something else has the name %s of proxy %s; nothing was touched", p.name, ref.Proxy)
	}
	return p, f, backends.Wrap(backends.ErrTransient, op, err, "the files of proxy %s cannot be read; nothing was changed", ref.Proxy)
}

// Get implements [backends.Backend].
func (b *Backend) Get(ctx context.Context, ref backends.Ref) (backends.Instance, error) {
	const op = "get"
	if err := ref.Validate(); err != nil {
		return backends.Instance{}, err
	}
	if err := ctx.Err(); err != nil {
		return backends.Instance{}, err
	}
	p, f, err := b.own(op, ref)
	if err != nil {
		return backends.Instance{}, err
	}
	if f.state == nil {
		return backends.Instance{}, backends.Errorf(backends.ErrNotFound, op, "proxy %s (%s) is not here", ref.Proxy, ref.UID)
	}
	i, err := b.instance(p, *f.state)
	return i, backends.Wrap(backends.ErrTransient, op, err, "cannot tell whether proxy %s runs", ref.Proxy)
}

// instance tells what a uid's process does now.
func (b *Backend) instance(p paths, s state) (backends.Instance, error) {
	i := backends.Instance{Mark: s.Mark, ID: p.name, Port: s.Port, Generation: s.Generation, Addresses: []netip.Addr{s.Address}}
	pid, err := holderOf(p.file(extLock))
	if err != nil {
		return i, err
	}
	var r run
	if _, err := get(p.file(extRun), &r); err != nil {
		r = run{} // the child is writing it for the first time, or the disk was full
	}
	switch {
	case pid != 0:
		i.ID, i.Status = strconv.Itoa(pid), backends.StatusStarting
		if r.PID == pid && r.Applied != "" {
			i.Status = backends.StatusRunning
		}
	case s.Generation == 0:
		i.Status, i.Message = backends.StatusBroken, "half-made"
	case s.Desired == backends.Stopped:
		i.Status = backends.StatusStopped
	default:
		i.Status, i.Reason = backends.StatusCrashed, "Exited"
		i.Message = "the process has ended; its log is " + p.file(extLog)
	}
	return i, nil
}

// List implements [backends.Backend].
func (b *Backend) List(ctx context.Context) (backends.Listing, error) {
	const op = "list"
	var l backends.Listing
	if err := ctx.Err(); err != nil {
		return l, err
	}
	names, err := b.names()
	if err != nil {
		return l, backends.Wrap(backends.ErrTransient, op, err, "cannot read %s", b.dir)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return backends.Listing{}, err
		}
		p := paths{b.dir, name}
		f, err := b.look(p, "")
		if errors.Is(err, errForeign) {
			continue
		}
		if err == nil && f.state != nil {
			var i backends.Instance
			if i, err = b.instance(p, *f.state); err == nil {
				l.Instances = append(l.Instances, i)
			}
		} else if err == nil && f.mark != nil {
			l.Leftovers = append(l.Leftovers, backends.Leftover{Mark: *f.mark, Kind: "state", Name: name})
		}
		if err != nil {
			l.Unread = append(l.Unread, backends.Unread{What: name, Err: backends.Wrap(backends.ErrTransient, op, err, "%s cannot be read", name)})
		}
	}
	return l, nil
}
