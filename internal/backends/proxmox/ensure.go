package proxmox

import (
	"context"
	"errors"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/told"
)

// job is one Ensure.
type job struct {
	backends.Request
	image  backends.Image
	need   need
	spec   told.Parts
	report func(backends.Progress)
}

func (j *job) step(name string) { j.report(backends.Progress{Step: name}) }

// Ensure implements [backends.Backend].
func (b *Backend) Ensure(ctx context.Context, req backends.Request, report func(backends.Progress)) (backends.Instance, error) {
	j, err := b.job(req, report)
	if err != nil {
		return backends.Instance{}, err
	}
	f, err := b.made(ctx, j)
	if err != nil {
		return backends.Instance{}, inEnsure(err)
	}
	if err := f.mark.Spec.Unchanged("VM", f.mark.Port, req, j.spec); err != nil {
		return backends.Instance{}, err
	}
	if !f.ready() {
		if f, err = b.provision(ctx, j, f); err != nil {
			return backends.Instance{}, inEnsure(err)
		}
	}
	if f, err = b.powered(ctx, j, f); err != nil {
		return backends.Instance{}, inEnsure(err)
	}
	if f, err = b.remark(ctx, f, req.Generation); err != nil {
		return backends.Instance{}, inEnsure(err)
	}
	i, err := b.instance(ctx, f, false)
	if err != nil {
		return backends.Instance{}, inEnsure(err)
	}
	return i, backends.Step(ctx, "done")
}

// inEnsure makes what vanished under a create something to try again.
func inEnsure(err error) error {
	if backends.Class(err) == backends.ErrNotFound {
		return backends.Wrap(backends.ErrTransient, "ensure", err, "something that it needs vanished meanwhile")
	}
	return err
}

// job looks a request up in the configuration; no request is made.
func (b *Backend) job(req backends.Request, report func(backends.Progress)) (*job, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	refuse := func(format string, args ...any) (*job, error) {
		return nil, backends.Errorf(backends.ErrPermanent, "check request", "proxy "+req.Proxy+": "+format, args...)
	}
	if report == nil {
		report = func(backends.Progress) {}
	}
	if req.Generation == 0 {
		return refuse("generation 0 is none")
	}
	image, ok := b.host.Images[req.Image]
	if !ok || image.Template == "" {
		return refuse("image %q is none of this host's; images on Proxmox VE are templates", req.Image)
	}
	shape, ok := b.host.MachineTypes[req.MachineType]
	if !ok {
		return refuse("machine type %q is none of this host's", req.MachineType)
	}
	if shape.VCPUs < 1 || shape.MemoryMiB < 16 {
		return refuse("machine type %q has %d processors and %d MiB; Proxmox VE wants one and 16 MiB at least", req.MachineType, shape.VCPUs, shape.MemoryMiB)
	}
	s, err := told.Of(req)
	if err != nil {
		return nil, err
	}
	return &job{Request: req, image: image, spec: s, report: report,
		need: need{cpus: shape.VCPUs, memory: int64(shape.MemoryMiB) * mib, disk: int64(req.DiskGiB) * gib}}, nil
}

// made returns the VM of a job, made if it is not there, and waits for a clone under way.
func (b *Backend) made(ctx context.Context, j *job) (found, error) {
	for {
		f, err := b.locate(ctx, j.Ref)
		var c *cloning
		switch {
		case err == nil:
			return f, b.forget(ctx, j.UID)
		case errors.As(err, &c):
			j.step("waiting for clone")
			if err := b.awaitClone(ctx, j.Ref, c, j.report); err != nil {
				return found{}, err
			}
		case errors.Is(err, errAbsent):
			return b.create(ctx, j)
		default:
			return found{}, err
		}
	}
}

// forget removes the record of a clone that has ended.
func (b *Backend) forget(ctx context.Context, uid string) error {
	if !b.records.exists(uid) {
		return nil
	}
	if err := backends.Step(ctx, "record.remove"); err != nil {
		return err
	}
	return b.records.remove(uid)
}

// remark writes the generation that a VM was brought to, where it differs.
func (b *Backend) remark(ctx context.Context, f found, generation uint64) (found, error) {
	if f.mark.Generation == generation {
		return f, nil
	}
	f, err := b.unlocked(ctx, f)
	if err != nil {
		return f, err
	}
	m := f.mark
	m.Generation = generation
	if err := backends.Step(ctx, "vm.mark"); err != nil {
		return f, err
	}
	err = b.api.Configure(ctx, f.vm.Node, f.vm.ID, f.conf["digest"], map[string]string{"description": describe(m, f.conf["description"])})
	if err != nil {
		return f, classify("mark VM", err, "the mark of %s cannot be written", f)
	}
	f.mark = m
	b.marks.put(f.vm, withDescription(f, m), time.Now())
	return f, nil
}
