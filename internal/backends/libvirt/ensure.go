package libvirt

import (
	"context"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// Ensure implements [backends.Backend]. It looks and counts first, then brings the base,
// then makes the files and the domain, and starts or stops it. What is whole already is
// left as it is.
func (b *Backend) Ensure(ctx context.Context, req backends.Request, report func(backends.Progress)) (backends.Instance, error) {
	if err := req.Validate(); err != nil {
		return backends.Instance{}, err
	}
	r := b.resolve(req)
	if report == nil {
		report = func(backends.Progress) {}
	}
	i, err := b.ensure(ctx, r, report)
	if err != nil {
		return backends.Instance{}, inside(err)
	}
	return i, nil
}

func (b *Backend) ensure(ctx context.Context, r resolved, report func(backends.Progress)) (backends.Instance, error) {
	report(backends.Progress{Step: "checking the host"})
	w := &work{b: b, r: r, name: backends.InstanceName(r.UID), report: report, release: func() {}}
	if err := b.with(ctx, w.survey); err != nil {
		return backends.Instance{}, err
	}
	defer func() { w.release() }()
	made := !w.whole()
	if made {
		// No connection is held meanwhile: this may take as long as a download.
		if err := w.bringBase(ctx); err != nil {
			return backends.Instance{}, err
		}
	}
	var i backends.Instance
	err := b.with(ctx, func(s *session) error {
		if made {
			if err := w.make(s); err != nil {
				w.giveBack(err)
				return err
			}
		}
		if err := w.power(s); err != nil {
			return err
		}
		if err := w.noteGeneration(s); err != nil {
			return err
		}
		var err error
		if i, err = b.instance(s, w.seen); err != nil {
			return err
		}
		if made {
			b.refreshPool(ctx, w.pool)
		}
		return backends.Step(ctx, "done")
	})
	return i, err
}

// work is one Ensure under way.
type work struct {
	b       *Backend
	r       resolved
	name    string
	report  func(backends.Progress)
	release func() // ends the reservation of capacity

	// Filled in by survey.
	seen
	pool     storage
	marker   marker
	marked   bool // the marker is on disk
	active   bool // a QEMU process is there
	lasting  bool // the domain is defined, not only running
	diskGone bool
	// lookedAgain says that the pool was refreshed for want of room.
	lookedAgain bool
	virt        virt
	next        *marker // what it is to become in place; nil: it is as asked

	base images.Base // by bringBase
}

// whole reports whether nothing but its power needs to be looked after. A domain that does
// not run is gone over each time: that is when its files can be mended.
func (w *work) whole() bool {
	return w.there && w.lasting && w.active && w.marked && !w.diskGone && w.next == nil
}

// survey looks at everything, refuses what is not ours, and asks for room before anything
// is made.
func (w *work) survey(s *session) error {
	if err := w.find(s); err != nil {
		return err
	}
	if w.marked {
		if field := w.marker.changed(w.r); field != "" {
			return backends.Errorf(backends.ErrPermanent, "check request",
				"%s of proxy %s differs from what its guest was made with, and cannot change in place; the guest is kept as it is", field, w.r.Proxy)
		}
		if err := w.surveyGrowth(s); err != nil {
			return err
		}
	}
	var err error
	if w.there {
		if w.active, w.lasting, err = activity(s, w.dom); err != nil {
			return err
		}
	}
	if !w.active {
		if err := w.b.networkUp(s); err != nil {
			return err
		}
	}
	if w.whole() {
		return nil
	}
	if w.virt, err = w.b.virt(s); err != nil {
		return err
	}
	if w.marked {
		return nil // counted already
	}
	return w.plan(s)
}

// find looks for the domain, the pool and what bears the instance's name there.
func (w *work) find(s *session) error {
	b, r := w.b, w.r
	var err error
	if w.seen, err = b.look(s, r.Ref); err != nil {
		return err
	}
	if !w.there && b.guests.isAway(r.UID) {
		return migratedAway(r.Proxy)
	}
	w.pool, err = b.pool(s)
	if hasCode(err, golibvirt.ErrNoStoragePool) && !w.there {
		// What was never here is better made on another host than waited for here.
		return backends.Wrap(backends.ErrPermanent, "storage pool", err, "this host has no storage pool %q; define it or correct storagePool", b.cfg.StoragePool)
	}
	if err != nil {
		return err
	}
	has, err := b.lookFor(s, w.pool, r.Ref, w.there)
	if err != nil {
		return err
	}
	w.marker, w.marked = has.marker, has.marked
	_, there := disk(has.pieces)
	w.diskGone = !there
	return nil
}

// plan makes the marker of an instance that has none, and asks for its room.
func (w *work) plan(s *session) error {
	r := w.r
	if r.missing != nil {
		return r.missing
	}
	port := r.Port
	if w.there {
		if port != 0 && port != w.Port {
			return backends.Errorf(backends.ErrPermanent, "check request", "port of proxy %s cannot change in place; the guest is kept as it is", r.Proxy)
		}
		port = w.Port
	}
	if port == 0 {
		port = defaultPort
	}
	w.marker = newMarker(w.b.owner, r, port, w.CreatedAt)
	if w.there {
		return nil // it exists: whether there is room is no question any more
	}
	return w.admit(s)
}

// admit asks for room, once more with a fresh look at the pool where there was none.
func (w *work) admit(s *session) error {
	for {
		before := w.b.admitted()
		u, err := w.b.usage(s, w.pool)
		if err != nil {
			return err
		}
		release, err := w.b.admit(u, before, w.r.UID, requirement{w.r.shape.VCPUs, w.r.shape.MemoryMiB, w.marker.DiskBytes})
		if err == nil {
			w.release = release
			return nil
		}
		if w.lookedAgain || !w.pool.refresh(s) {
			return err
		}
		w.lookedAgain = true
	}
}

// activity tells whether a domain runs and whether it is defined.
func activity(s *session, dom golibvirt.Domain) (active, lasting bool, err error) {
	a, err := read(s, "read domain", func(l *golibvirt.Libvirt) (int32, error) { return l.DomainIsActive(dom) })
	if err != nil {
		return false, false, err
	}
	p, err := read(s, "read domain", func(l *golibvirt.Libvirt) (int32, error) { return l.DomainIsPersistent(dom) })
	return a == 1, p == 1, err
}

// bringBase finds the base that the disk was made on, or fetches the image of today.
func (w *work) bringBase(ctx context.Context) error {
	var err error
	if w.marker.Base != "" {
		// The entry may have changed since; an existing disk keeps its base.
		err = w.b.with(ctx, func(s *session) (err error) {
			w.base, err = w.pool.findBase(s, w.marker.Base, w.marker.BaseFormat)
			return err
		})
		if err != nil {
			return err
		}
	}
	if w.base.Path == "" && w.r.missing != nil {
		return w.r.missing
	}
	if w.base.Path == "" {
		if w.base, err = w.pool.fetchBase(ctx, w.r.source(), w.report); err != nil {
			return err
		}
		w.b.keepCap(ctx)
	}
	if int64(w.base.VirtualSize) > w.marker.DiskBytes {
		return backends.Errorf(backends.ErrPermanent, "check request", "image %q is %d MiB large and does not fit on a disk of %d GiB",
			w.r.Image, w.base.VirtualSize>>20, w.r.DiskGiB)
	}
	return nil
}
