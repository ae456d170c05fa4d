package libvirt

import (
	"context"

	"proxyfleet/internal/backends/images"
)

// prune keeps the image cache under its configured cap, if there is one, by removing bases
// that no guest was made on. What it cannot judge it keeps; it never fails a create.
func (b *Backend) prune(ctx context.Context, p place) {
	limit := int64(b.host.Limits.ImageCacheGiB) << 30
	if limit == 0 {
		return
	}
	markers, unread, err := p.markers()
	if err != nil || len(unread) > 0 {
		b.log.WarnContext(ctx, "the image cache is not pruned: a marker cannot be read", "error", err, "unread", len(unread))
		return
	}
	used := map[string]bool{}
	for _, m := range markers {
		used[m.Base] = true
	}
	removed, err := images.Prune(ctx, p.dir, limit, used)
	if err != nil {
		b.log.WarnContext(ctx, "the image cache was not pruned", "error", err)
	}
	for _, base := range removed {
		b.log.InfoContext(ctx, "an unused base image was removed", "path", base, "imageCacheGiB", b.host.Limits.ImageCacheGiB)
	}
}
