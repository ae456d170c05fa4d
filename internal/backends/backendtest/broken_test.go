package backendtest_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/backendtest"
	"proxyfleet/internal/backends/sim/simtest"
)

// broken is a simulated backend with one fault.
type broken struct {
	*inner
	fault string
	host  string
	log   *slog.Logger
}

// inner keeps Watch, which a plain interface would hide.
type inner struct {
	backends.Backend
	backends.Watcher
}

func (b *broken) disk(uid string) string {
	return filepath.Join(b.host, backends.InstanceName(uid)+".disk.json")
}

// faults are what the suite must catch, with the case that does.
var faults = map[string]string{
	"adopts what is foreign":                       "a thing of nobody's under our name",
	"deletes what is foreign":                      "another installation's thing under our name",
	"reads what is foreign":                        "our own thing of another uid",
	"leaves a disk behind":                         "an instance is made and carries our mark",
	"takes unreadable for gone":                    "an unreadable instance is neither gone",
	"hides what it could not read":                 "an unreadable instance is neither gone",
	"says the password in a log":                   "made twice it is one and the same",
	"says the password in a step":                  "made twice it is one and the same",
	"makes something before it says NoCapacity":    "too large a request is NoCapacity",
	"opens a proxy to the world":                   "a request without an access rule",
	"ignores that its context has ended":           "a context that has ended makes and removes nothing",
	"forgets the generation":                       "a generation alone changes nothing else",
	"marks anew at each start":                     "it outlives the agent and is adopted",
	"reports a loopback address":                   "an instance is made and carries our mark",
	"lists an instance twice":                      "an instance is made and carries our mark",
	"does not know what it deleted":                "deleted twice it is gone twice",
	"leaves running what should stop":              "running, stopped, running and stopped",
	"gives up on half-made things":                 "killed at any step of creating, the next agent finishes",
	"cannot delete half-made things":               "killed at any step of creating and deleted then",
	"forgets half-made things":                     "killed at any step of creating, the next agent finishes",
	"cannot go on deleting":                        "killed at any step of deleting",
	"announces no steps":                           "an error at any step of creating is returned, and the next",
	"goes on after a failed step":                  "an error at any step of creating is returned, and the next",
	"lingers after its context":                    "cancelled at any step of creating it ends soon, and the next",
	"watches without a first event":                "a watcher tells at once",
	"never closes a watch":                         "a watcher tells at once",
	"takes odd refs":                               "odd refs are refused",
	"changes in place what it says it cannot":      "what changes in place does",
	"restarts nothing":                             "an instance that ended by itself is told of",
	"fails when asked to delete what is not there": "deleting what was never made",
	"takes a refusal for gone":                     "a host that refuses our credentials is at fault",
	"waits for a host that hangs":                  "calls to a host that hangs end with their context",
	"leaves a goroutine":                           "closing ends every goroutine",
	"checks nothing":                               "checks have a target",
	"offers no room":                               "the offer can be placed by",
}

func harness(fault string) backendtest.Harness {
	h := simtest.Harness()
	h.Promptness = 500 * time.Millisecond
	if fault == "" {
		return h
	}
	open := h.Open
	h.Open = func(host string, owner backends.Owner, log *slog.Logger) (backends.Backend, error) {
		b, err := open(host, owner, log)
		if err != nil {
			return nil, err
		}
		return &broken{&inner{b, b.(backends.Watcher)}, fault, host, log}, nil
	}
	return h
}

// halfMade tells whether there is a disk and no instance.
func (b *broken) halfMade(uid string) bool {
	_, noDisk := os.Stat(b.disk(uid))
	_, err := b.Backend.Get(context.Background(), backends.Ref{Proxy: "any", UID: uid})
	return noDisk == nil && backends.Class(err) == backends.ErrNotFound
}

func (b *broken) Ensure(ctx context.Context, req backends.Request, report func(backends.Progress)) (backends.Instance, error) {
	switch b.fault {
	case "leaves a goroutine":
		go func() { select {} }()
	case "says the password in a log":
		b.log.Debug("ensuring", "password", req.Access.Password.Reveal())
	case "says the password in a step":
		report(backends.Progress{Step: "password " + req.Access.Password.Reveal()})
	case "makes something before it says NoCapacity":
		if req.DiskGiB > 1000 {
			_ = backends.Step(ctx, "disk.create")
		}
	case "opens a proxy to the world":
		if req.Access.Username == "" {
			return backends.Instance{}, nil
		}
	case "ignores that its context has ended":
		ctx = context.WithoutCancel(ctx)
	case "gives up on half-made things":
		if b.halfMade(req.UID) {
			return backends.Instance{}, backends.Errorf(backends.ErrTransient, "ensure", "half-made")
		}
	case "announces no steps":
		ctx = backends.WithSteps(ctx, func(string) error { return nil })
	case "lingers after its context":
		defer func() {
			if ctx.Err() != nil {
				time.Sleep(time.Second)
			}
		}()
	case "takes odd refs":
		if req.Ref.Validate() != nil {
			return backends.Instance{}, nil
		}
	case "leaves running what should stop":
		req.Desired = backends.Running
	case "changes in place what it says it cannot":
		if i, err := b.Backend.Get(ctx, req.Ref); err == nil && i.Port != req.Port && req.Port != 0 {
			return i, nil
		}
	case "restarts nothing":
		if i, err := b.Backend.Get(ctx, req.Ref); err == nil && i.Status == backends.StatusCrashed {
			return i, nil
		}
	}
	i, err := b.Backend.Ensure(ctx, req, report)
	switch {
	case b.fault == "adopts what is foreign" && backends.Class(err) == backends.ErrConflict:
		return backends.Instance{Status: backends.StatusRunning}, nil
	case b.fault == "goes on after a failed step" && backends.Class(err) == backends.ErrTransient:
		return b.Backend.Ensure(context.WithoutCancel(backends.WithSteps(ctx, func(string) error { return nil })), req, report)
	}
	return b.spoil(i), err
}

// spoil is what is wrong with every instance that is read.
func (b *broken) spoil(i backends.Instance) backends.Instance {
	switch b.fault {
	case "forgets the generation":
		i.Generation = 1
	case "marks anew at each start":
		i.Mark.CreatedAt = time.Now().UTC()
	case "reports a loopback address":
		i.Addresses = append(i.Addresses, loopback)
	}
	return i
}

func (b *broken) Get(ctx context.Context, ref backends.Ref) (backends.Instance, error) {
	if b.fault == "takes odd refs" && ref.Validate() != nil {
		return backends.Instance{}, nil
	}
	if b.fault == "waits for a host that hangs" {
		defer func() {
			if ctx.Err() != nil {
				time.Sleep(time.Second)
			}
		}()
	}
	i, err := b.Backend.Get(ctx, ref)
	switch {
	case b.fault == "takes unreadable for gone" && backends.Class(err) == backends.ErrTransient:
		return i, backends.Errorf(backends.ErrNotFound, "get", "gone")
	case b.fault == "takes a refusal for gone" && backends.Class(err) == backends.ErrHostFault:
		return i, backends.Errorf(backends.ErrNotFound, "get", "gone")
	case b.fault == "reads what is foreign" && backends.Class(err) == backends.ErrConflict:
		return i, backends.Errorf(backends.ErrNotFound, "get", "gone")
	}
	return b.spoil(i), err
}

func (b *broken) Delete(ctx context.Context, ref backends.Ref) error {
	switch b.fault {
	case "cannot delete half-made things", "cannot go on deleting":
		if b.halfMade(ref.UID) {
			return backends.Errorf(backends.ErrTransient, "delete", "half-made")
		}
	case "fails when asked to delete what is not there":
		if _, err := b.Backend.Get(ctx, ref); err != nil {
			return err
		}
	case "does not know what it deleted":
		if _, err := os.Stat(b.disk(ref.UID)); err != nil {
			return backends.Errorf(backends.ErrConflict, "delete", "what was that")
		}
	case "deletes what is foreign":
		name := filepath.Join(b.host, backends.InstanceName(ref.UID)+".instance.json")
		if err := b.Backend.Delete(ctx, ref); backends.Class(err) == backends.ErrConflict {
			_ = os.Remove(name)
			return err
		}
	}
	disk, readErr := os.ReadFile(b.disk(ref.UID))
	err := b.Backend.Delete(ctx, ref)
	if b.fault == "leaves a disk behind" && readErr == nil && err == nil {
		return os.WriteFile(b.disk(ref.UID), disk, 0o600)
	}
	return err
}

func (b *broken) List(ctx context.Context) (backends.Listing, error) {
	l, err := b.Backend.List(ctx)
	switch b.fault {
	case "hides what it could not read":
		l.Unread = nil
	case "forgets half-made things":
		l.Leftovers = nil
	case "lists an instance twice":
		l.Instances = append(l.Instances, slices.Clone(l.Instances)...)
	}
	for i := range l.Instances {
		l.Instances[i] = b.spoil(l.Instances[i])
	}
	return l, err
}

func (b *broken) Check(ctx context.Context) []backends.TargetHealth {
	if b.fault == "checks nothing" {
		return nil
	}
	return b.Backend.Check(ctx)
}

func (b *broken) Offer(ctx context.Context) (backends.Offer, error) {
	o, err := b.Backend.Offer(ctx)
	if b.fault == "offers no room" {
		o.Capacity.Slots = 0
	}
	return o, err
}

func (b *broken) Watch(ctx context.Context) <-chan backends.Event {
	switch b.fault {
	case "never closes a watch":
		return b.Watcher.Watch(context.WithoutCancel(ctx))
	case "watches without a first event":
		out := make(chan backends.Event)
		context.AfterFunc(ctx, func() { close(out) })
		return out
	}
	return b.Watcher.Watch(ctx)
}
