package libvirt

import (
	"context"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// keepCap keeps the image cache under its configured cap, if there is one. It never fails a
// create.
func (b *Backend) keepCap(ctx context.Context) {
	limit := int64(b.host.Limits.ImageCacheGiB) << 30
	if limit == 0 {
		return
	}
	if _, err := b.PruneImages(ctx, limit); err != nil {
		b.log.WarnContext(ctx, "the image cache was not pruned", "error", err)
	}
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
	excess := images.Excess(c.bases, limit, c.used, b.now())
	if len(excess) == 0 {
		return nil, nil
	}
	built, err := c.pool.builtOn(c.session)
	if err != nil {
		return nil, err
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
	c.bases, err = c.pool.bases(s)
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
	return found, nil
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
