package libvirt

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

const basePrefix = "pf-base-"

// baseRecord is what stands beside a base that is whole.
type baseRecord struct {
	Digest      string    `json:"digest"`
	Format      string    `json:"format"`
	VirtualSize uint64    `json:"virtualSize"`
	Bytes       int64     `json:"bytes"`
	Source      string    `json:"source"`
	Asked       time.Time `json:"asked"`
}

// baseStem is the name of a base of this agent's, without what follows the dot. Each agent
// has bases of its own: one that has no record was left by an upload of ours that was cut
// off, and not by another agent's that is under way.
func (v volumes) baseStem(digest string) string {
	_, sum, _ := strings.Cut(digest, ":")
	return basePrefix + sum[:24] + "-" + ownerTag(v.b.owner)
}

func (v volumes) baseName(digest, format string) string { return v.baseStem(digest) + "." + format }

func (v volumes) findBase(s *session, digest, format string) (images.Base, error) {
	b, err := v.storedBase(s, v.baseStem(digest)+".json")
	if err != nil || b.Digest != digest || b.Format != format {
		return images.Base{}, err
	}
	return b.Base, nil
}

// storedBase reads a record and finds its base; without both it is empty.
func (v volumes) storedBase(s *session, name string) (images.Stored, error) {
	vol, there, err := v.find(s, name)
	if err != nil || !there {
		return images.Stored{}, err
	}
	text, err := v.download(s, vol, recordSize)
	if err != nil {
		return images.Stored{}, err
	}
	var r baseRecord
	if json.Unmarshal(bytes.Trim(text, "\x00"), &r) != nil || !images.ValidDigest(r.Digest) {
		return images.Stored{}, nil // cut off
	}
	path, there, err := v.path(s, v.baseName(r.Digest, r.Format))
	if err != nil || !there {
		return images.Stored{}, err
	}
	return images.Stored{Base: images.Base{Path: path, Format: r.Format, Digest: r.Digest, VirtualSize: r.VirtualSize, Source: r.Source},
		Bytes: r.Bytes, Asked: r.Asked}, nil
}

func (v volumes) fetchBase(ctx context.Context, src images.Source, report func(backends.Progress)) (base images.Base, err error) {
	dir, err := v.b.imageDir()
	if err != nil {
		return images.Base{}, err
	}
	want, err := images.Wanted(dir, src)
	if err != nil {
		return images.Base{}, err
	}
	if want != "" {
		base, err = v.askFor(ctx, want, v.format(src.Kind()))
		if err != nil || base.Path != "" {
			return base, err
		}
	}
	local, err := v.b.images.Fetch(ctx, dir, src, steps(report))
	if err != nil {
		return images.Base{}, err
	}
	return v.publish(ctx, dir, local, report)
}

// askFor finds a base and notes that somebody asked for it.
func (v volumes) askFor(ctx context.Context, digest, format string) (base images.Base, err error) {
	err = v.b.with(ctx, func(s *session) error {
		stored, err := v.storedBase(s, v.baseStem(digest)+".json")
		if err != nil || stored.Digest != digest || stored.Format != format {
			return err
		}
		base = stored.Base
		if time.Since(stored.Asked) < askedAge {
			return nil
		}
		return v.writeRecord(s, "base.note", stored)
	})
	return base, err
}

// askedAge is how old the note may be of when a base was last asked for. It is far below the
// time for which pruning spares a base.
const askedAge = 15 * time.Minute

func (v volumes) writeRecord(s *session, step string, b images.Stored) error {
	text, err := json.Marshal(baseRecord{Digest: b.Digest, Format: b.Format, VirtualSize: b.VirtualSize, Bytes: b.Bytes, Source: b.Source, Asked: time.Now().UTC()})
	if err != nil {
		return err
	}
	if len(text) > recordSize {
		return backends.Errorf(backends.ErrPermanent, "write record", "the URL of the image is too long")
	}
	vol, err := v.room(s, v.baseStem(b.Digest)+".json", step, recordSize)
	if err != nil {
		return err
	}
	return v.fill(s, step, vol, record(text))
}

// publish brings an image of this machine into the pool. One process at a time does so for an
// image. What is on this machine is removed then: the pool has it.
func (v volumes) publish(ctx context.Context, dir string, local images.Base, report func(backends.Progress)) (images.Base, error) {
	lock, err := images.Lock(ctx, images.UploadLock(dir, sumOf(v.baseStem(local.Digest))))
	if err != nil {
		return images.Base{}, fileError("upload image", err)
	}
	defer images.Unlock(lock)
	base, err := v.askFor(ctx, local.Digest, v.format(local.Format))
	if err != nil || base.Path != "" {
		return base, err
	}
	report(backends.Progress{Step: "uploading image"})
	file, size, err := v.uploadable(ctx, local, lock.Name()+".raw")
	if err != nil {
		return images.Base{}, err
	}
	defer file.Close()
	stored := images.Stored{Base: local, Bytes: size}
	stored.Format = v.format(local.Format)
	name := v.baseName(stored.Digest, stored.Format)
	err = v.b.with(ctx, func(s *session) error {
		if err := v.clear(s, name); err != nil {
			return err
		}
		if err := v.spaceFor(s, size, name); err != nil {
			return err
		}
		d := plain(name, size, "0644")
		d.Target.Format.Type = stored.Format
		vol, err := v.create(s, "base.create", d)
		if err != nil {
			return err
		}
		if err := backends.Step(s.ctx, "base.upload"); err != nil {
			return err
		}
		return v.upload(s, vol, file, size, func(sent int64) {
			report(backends.Progress{Step: "uploading image", Percent: int(sent * 100 / max(size, 1))})
		})
	})
	if err == nil {
		// The daemon reads the pool anew after an upload; the record comes behind that.
		err = v.b.with(ctx, func(s *session) error { return v.writeRecord(s, "base.record", stored) })
	}
	if backends.Class(err) == backends.ErrNoCapacity {
		_ = v.b.with(ctx, func(s *session) error { return v.clear(s, name) })
	}
	if err != nil {
		return images.Base{}, err
	}
	if err := images.Remove(dir, local); err != nil {
		v.b.log.WarnContext(ctx, "an image that is in the pool now was not removed from this machine", "path", local.Path, "error", err)
	}
	return v.askFor(ctx, stored.Digest, stored.Format)
}

// clear removes a volume of that name.
func (v volumes) clear(s *session, name string) error {
	vol, there, err := v.find(s, name)
	if err != nil || !there {
		return err
	}
	return v.delete(s, "base.remove", vol)
}

// spaceFor refuses an image that does not fit, before it fills the pool.
func (v volumes) spaceFor(s *session, size int64, name string) error {
	free, err := v.free(s)
	if err != nil {
		return err
	}
	if left := free - int64(v.b.host.Limits.Reserve.DiskGiB)<<30; size > left {
		return backends.Errorf(backends.ErrNoCapacity, "upload image", "the base image %s needs %d MiB in the pool, %d MiB are free for it", name, size>>20, max(left, 0)>>20)
	}
	return nil
}

// uploadable is the file whose bytes go into the pool: the image itself, or for devices, which
// hold no qcow2 image, what a guest would see of it, converted by way of a file raw.
func (v volumes) uploadable(ctx context.Context, local images.Base, raw string) (*os.File, int64, error) {
	path := local.Path
	if v.block && local.Format != "raw" {
		path = raw
		if err := images.Raw(ctx, local, path); err != nil {
			return nil, 0, err
		}
		defer os.Remove(path) // it stays open
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fileError("upload image", err)
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, 0, fileError("upload image", err)
	}
	return f, info.Size(), nil
}

func (v volumes) bases(s *session) ([]images.Stored, error) {
	all, err := v.list(s)
	if err != nil {
		return nil, err
	}
	var found []images.Stored
	for _, vol := range all {
		if !v.ownBase(vol.Name) || !strings.HasSuffix(vol.Name, ".json") {
			continue
		}
		b, err := v.storedBase(s, vol.Name)
		if err != nil {
			return nil, err
		}
		if b.Path != "" {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b images.Stored) int { return a.Asked.Compare(b.Asked) })
	return found, nil
}

// ownBase reports whether a volume's name is that of a base of this agent's, or its record.
func (v volumes) ownBase(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	sum, own := strings.CutSuffix(strings.TrimPrefix(stem, basePrefix), "-"+ownerTag(v.b.owner))
	return own && len(sum) == 24 && strings.HasPrefix(stem, basePrefix)
}

func (v volumes) builtOn(s *session) (map[string]bool, error) {
	all, err := v.list(s)
	if err != nil {
		return nil, err
	}
	built := map[string]bool{}
	for _, vol := range all {
		d, err := v.describe(s, vol)
		if hasCode(err, golibvirt.ErrNoStorageVol) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if d.BackingStore != nil {
			built[d.BackingStore.Path] = true
		}
	}
	return built, nil
}

// removeBase takes the record first: without it there is no base.
func (v volumes) removeBase(s *session, b images.Base) error {
	if err := v.clear(s, v.baseStem(b.Digest)+".json"); err != nil {
		return err
	}
	return v.clear(s, v.baseName(b.Digest, b.Format))
}
