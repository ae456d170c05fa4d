package libvirt

import (
	"context"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
)

// make brings files and domain into being or mends them, in the order in which each can be
// found again: the marker, the disk, the seed, the domain.
func (w *work) make(s *session) error {
	if w.there {
		if err := w.ownDisk(s); err != nil {
			return err
		}
	}
	if w.active {
		if err := undisturbed(s, w.dom, w.r.Proxy); err != nil {
			return err
		}
	}
	if err := w.grow(s); err != nil {
		return err
	}
	if err := w.makeMarker(s); err != nil {
		return err
	}
	w.release() // the marker counts it now
	if w.active && w.diskGone {
		// It runs on a file that nobody can find any more.
		if err := w.destroy(s); err != nil {
			return err
		}
		w.active = false
	}
	if !w.active {
		if err := w.makeDisk(s); err != nil {
			return err
		}
		if err := w.makeSeed(s); err != nil {
			return err
		}
	}
	return w.define(s)
}

// giveBack removes what was made of a guest that found no room, so that a full pool is not
// filled further by what cannot be finished. It works beside the session that failed, for a
// few seconds at most, and what it leaves is found by its marker.
func (w *work) giveBack(why error) {
	if backends.Class(why) != backends.ErrNoCapacity || w.there {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), givingBack)
	defer cancel()
	err := w.b.with(ctx, func(s *session) error {
		has, err := w.b.lookFor(s, w.pool, w.r.Ref, false)
		for _, x := range has.pieces {
			if err == nil {
				err = w.pool.remove(s, x)
			}
		}
		return err
	})
	if err != nil {
		w.b.log.Warn("what was made of a guest before the pool was full stays until it is deleted", "uid", w.r.UID, "error", err)
	}
}

const givingBack = 10 * time.Second

// gone turns an answer that there is nothing (more) to do into success.
func gone(err error) error {
	if hasCode(err, golibvirt.ErrNoDomain) || hasCode(err, golibvirt.ErrOperationInvalid) {
		return nil
	}
	return err
}

func (w *work) makeMarker(s *session) error {
	if w.marked && w.marker.Base == w.base.Digest && w.marker.BaseFormat == w.base.Format {
		return nil
	}
	w.marker.Base, w.marker.BaseFormat = w.base.Digest, w.base.Format
	if err := w.pool.writeMarker(s, w.name, w.marker); err != nil {
		return err
	}
	w.marked = true
	return nil
}

func (w *work) makeDisk(s *session) error {
	fits, err := w.pool.diskFits(s, w.name, w.marker, w.base)
	if err != nil || fits {
		return err
	}
	w.report(backends.Progress{Step: "creating disk"})
	return w.pool.createDisk(s, w.name, &w.marker, w.base)
}

func (w *work) makeSeed(s *session) error {
	iso, err := w.b.seeds.build(w.r, w.marker.Port)
	if err != nil {
		return err
	}
	is, err := w.pool.seedIs(s, w.name, iso)
	if err != nil || is {
		return err
	}
	w.report(backends.Progress{Step: "writing seed"})
	return w.pool.writeSeed(s, w.name, iso)
}

func (w *work) define(s *session) error {
	generation := w.r.Generation
	if w.there {
		generation = w.Generation // raised once everything is as asked
	}
	m := domainMark{Mark: w.marker.mark(), Generation: generation, Port: w.marker.Port}
	at, err := w.pool.attach(s, w.name, w.base)
	if err != nil {
		return err
	}
	text, err := blueprint{
		mark: m, vcpus: w.marker.VCPUs, memoryMiB: w.marker.MemoryMiB, firmware: w.marker.Firmware, virt: w.virt.kind, cpuMode: w.virt.cpu,
		network: w.b.cfg.Network, at: at,
	}.render()
	if err != nil {
		return backends.Wrap(backends.ErrPermanent, "define domain", err, "the domain of proxy %s cannot be described", w.r.Proxy)
	}
	w.report(backends.Progress{Step: "defining domain"})
	return s.write("domain.define", "define domain", func(l *golibvirt.Libvirt) error {
		dom, err := l.DomainDefineXMLFlags(text, golibvirt.DomainDefineValidate)
		if err != nil {
			return err
		}
		w.seen = seen{there: true, dom: dom, domainMark: m}
		return nil
	})
}

// noteGeneration writes the request's generation into the mark, where it is another.
func (w *work) noteGeneration(s *session) error {
	if w.Generation == w.r.Generation {
		return nil
	}
	m := w.domainMark
	m.Generation = w.r.Generation
	flags := golibvirt.DomainAffectConfig
	active, _, err := activity(s, w.dom)
	if err != nil {
		return err
	}
	if active {
		flags |= golibvirt.DomainAffectLive
	}
	err = s.write("domain.mark", "write mark", func(l *golibvirt.Libvirt) error {
		return l.DomainSetMetadata(w.dom, int32(golibvirt.DomainMetadataElement),
			golibvirt.OptString{m.element()}, golibvirt.OptString{markPrefix}, golibvirt.OptString{markNamespace}, flags)
	})
	if err != nil {
		return err
	}
	w.domainMark = m
	w.b.marks.forget(w.dom.UUID)
	return nil
}

// refreshPool lets libvirt see files that came and went, for people who list volumes. The
// agent does not depend on it, so one that is under way is enough, and an error is logged.
func (b *Backend) refreshPool(ctx context.Context, p storage) {
	if _, files := p.(place); !files {
		return // it was libvirt that changed the pool
	}
	if !b.refreshing.TryLock() {
		return
	}
	defer b.refreshing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := b.open(ctx)
	if err != nil {
		return
	}
	defer s.close()
	err = s.do("refresh pool", readBudget, 0, func(l *golibvirt.Libvirt) error {
		pool, err := l.StoragePoolLookupByName(b.cfg.StoragePool)
		if err != nil {
			return err
		}
		return l.StoragePoolRefresh(pool, 0)
	})
	if err != nil {
		b.log.DebugContext(ctx, "the storage pool was not refreshed", "error", err)
	}
}
