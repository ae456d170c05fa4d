package libvirt

import (
	"context"
	"math"
	"slices"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// keepCap keeps the image cache under its configured cap, if there is one. It never fails a
// create.
func (b *Backend) keepCap(ctx context.Context) {
	if b.host.Limits.ImageCacheGiB == 0 {
		return
	}
	if _, err := b.PruneImages(ctx, b.imageCap()); err != nil {
		b.log.WarnContext(ctx, "the image cache was not pruned", "error", err)
	}
}

// imageCap is what bases may take, in bytes.
func (b *Backend) imageCap() int64 {
	if gib := b.host.Limits.ImageCacheGiB; gib > 0 {
		return int64(gib) << 30
	}
	return math.MaxInt64
}

// PruneImages implements [backends.ImageKeeper]. A base stays that a guest was made on,
// also by another agent on the pool, or that any image in the pool is built on. What cannot
// be judged is kept.
func (b *Backend) PruneImages(ctx context.Context, limit int64) (removed []backends.BaseImage, err error) {
	c, err := b.openCache(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	now := b.now()
	excess := images.Excess(c.bases, limit, c.used, now)
	idle := slices.DeleteFunc(c.rests, func(x rest) bool { return !x.Idle(now) })
	if len(excess)+len(idle) == 0 {
		return nil, nil
	}
	built, err := c.pool.builtOn(c.session)
	if err != nil {
		return nil, err
	}
	for _, x := range idle {
		if built[x.Path] {
			continue
		}
		gone, err := c.pool.removeRest(c.session, x, now)
		if err != nil {
			return removed, err
		}
		if gone {
			b.log.InfoContext(ctx, "what a fetch of an image had left was removed", "path", x.Path, "source", x.Source)
			removed = append(removed, unfinished(x))
		}
	}
	for _, x := range excess {
		if built[x.Path] {
			continue
		}
		if err := c.pool.removeBase(c.session, x.Base); err != nil {
			return removed, err
		}
		b.log.InfoContext(ctx, "an unused base image was removed", "path", x.Path, "source", x.Source)
		removed = append(removed, c.image(x))
	}
	return removed, nil
}

// cache are the base images of the pool, as one session sees them.
type cache struct {
	*session
	pool  storage
	bases []images.Stored
	used  map[string]bool // digests that guests were made on
	rests []rest
}

func (b *Backend) openCache(ctx context.Context) (c *cache, err error) {
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	c = &cache{session: s}
	if c.pool, err = b.pool(s); err != nil {
		return nil, err
	}
	if c.used, err = b.inUse(s, c.pool); err != nil {
		return nil, err
	}
	if c.bases, err = c.pool.bases(s); err != nil {
		return nil, err
	}
	c.rests, err = c.pool.rests(s)
	return c, err
}

// inUse are the digests that guests of the pool were made on, whoever's.
func (b *Backend) inUse(s *session, p storage) (map[string]bool, error) {
	pool, err := p.inventory(s)
	if err != nil {
		return nil, err
	}
	if len(pool.unread) > 0 {
		return nil, backends.Wrap(backends.ErrTransient, "list images", pool.unread[0].Err, "which images are in use is not known while a marker cannot be read")
	}
	used := map[string]bool{}
	for _, m := range pool.markers {
		used[m.Base] = true
	}
	return used, nil
}

// ListImages implements [backends.ImageKeeper].
func (b *Backend) ListImages(ctx context.Context) ([]backends.BaseImage, error) {
	c, err := b.openCache(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	var found []backends.BaseImage
	for _, x := range c.bases {
		found = append(found, c.image(x))
	}
	for _, x := range c.rests {
		found = append(found, unfinished(x))
	}
	return found, nil
}

func unfinished(x rest) backends.BaseImage {
	return backends.BaseImage{Source: x.Source, Path: x.Path, Bytes: x.Bytes, Asked: x.Asked, InUse: x.Busy, Unfinished: true}
}

func (c *cache) image(x images.Stored) backends.BaseImage {
	return backends.BaseImage{
		Digest: x.Digest, Format: x.Format, Source: x.Source, Path: x.Path, Bytes: x.Bytes, VirtualBytes: int64(x.VirtualSize),
		Asked: x.Asked, InUse: c.used[x.Digest],
	}
}

// PullImage implements [backends.ImageKeeper].
func (b *Backend) PullImage(ctx context.Context, key string, report func(backends.Progress)) (backends.BaseImage, error) {
	image, known := b.host.Images[key]
	if !known {
		return backends.BaseImage{}, backends.Errorf(backends.ErrPermanent, "pull image", "this host has no image %q", key)
	}
	s, err := b.open(ctx)
	if err != nil {
		return backends.BaseImage{}, err
	}
	p, err := b.pool(s)
	s.close()
	if err != nil {
		return backends.BaseImage{}, err
	}
	if report == nil {
		report = func(backends.Progress) {}
	}
	base, err := p.fetchBase(ctx, sourceOf(key, image), report)
	if err != nil {
		return backends.BaseImage{}, err
	}
	return backends.BaseImage{Digest: base.Digest, Format: base.Format, Source: base.Source, Path: base.Path, VirtualBytes: int64(base.VirtualSize), Asked: time.Now()}, nil
}
