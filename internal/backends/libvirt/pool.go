package libvirt

import (
	"os"
	"path/filepath"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
)

// pool finds the configured pool. It must be active: an inactive one may be a file system that
// is not mounted, whose directory would be the root disk's. One that starts with its host and
// does not run is started where it is sure to be the same one, see [Backend.wake].
func (b *Backend) pool(s *session) (storage, error) {
	p, err := b.anyPool(s)
	if err != nil {
		return nil, err
	}
	if !p.active {
		if p.active, err = b.wake(s, p); err != nil {
			return nil, err
		}
	}
	if !p.active {
		return nil, backends.Errorf(backends.ErrHostFault, "storage pool",
			"pool %q is not active; start it (virsh pool-start) once its target is mounted", b.cfg.StoragePool)
	}
	return p.storage, nil
}

// poolState is a pool as the daemon describes it.
type poolState struct {
	pool    golibvirt.StoragePool
	storage storage
	dir     string // of a pool whose files the agent uses itself
	active  bool
	kind    string
}

func (b *Backend) anyPool(s *session) (poolState, error) {
	pool, err := read(s, "storage pool", func(l *golibvirt.Libvirt) (golibvirt.StoragePool, error) {
		return l.StoragePoolLookupByName(b.cfg.StoragePool)
	})
	if err != nil {
		return poolState{}, err
	}
	active, err := read(s, "storage pool", func(l *golibvirt.Libvirt) (int32, error) { return l.StoragePoolIsActive(pool) })
	if err != nil {
		return poolState{}, err
	}
	text, err := read(s, "storage pool", func(l *golibvirt.Libvirt) (string, error) { return l.StoragePoolGetXMLDesc(pool, 0) })
	if err != nil {
		return poolState{}, err
	}
	var desc libvirtxml.StoragePool
	if err := desc.Unmarshal(text); err != nil {
		return poolState{}, backends.Wrap(backends.ErrTransient, "storage pool", err, "the description of pool %q cannot be read", b.cfg.StoragePool)
	}
	p := poolState{pool: pool, active: active == 1, kind: desc.Type}
	switch desc.Type {
	case "dir", "fs", "netfs":
		if b.cfg.throughVolumes() {
			p.storage = volumes{b: b, pool: pool}
			return p, nil
		}
	case "logical", "zfs":
		p.storage = volumes{b: b, pool: pool, block: true}
		return p, nil
	default:
		return poolState{}, backends.Errorf(backends.ErrHostFault, "storage pool",
			"pool %q is of type %s, whose volumes libvirt can not make or fill as proxies need it; use one of type dir, fs, netfs, logical or zfs", b.cfg.StoragePool, desc.Type)
	}
	if desc.Target == nil || !filepath.IsAbs(desc.Target.Path) {
		return poolState{}, backends.Errorf(backends.ErrHostFault, "storage pool", "pool %q has no target directory", b.cfg.StoragePool)
	}
	// A path through a symbolic link gets no AppArmor rule.
	dir, err := filepath.EvalSymlinks(desc.Target.Path)
	if err != nil {
		return poolState{}, fileError("storage pool", err)
	}
	p.storage, p.dir = place{dir, desc.UUID, ownerTag(b.owner), b.images}, dir
	return p, nil
}

// wake starts a pool that was to start with its host, and reports whether it runs. For types
// other than dir starting is what mounts or activates the source, and fails without it. A
// directory may be the mount point of a file system that is not there: it is started only when
// the record of the pool is in it.
func (b *Backend) wake(s *session, p poolState) (bool, error) {
	if p.kind == "dir" {
		if files, ours := p.storage.(place); !ours || !files.recorded() {
			return false, nil
		}
	}
	autostart, err := read(s, "storage pool", func(l *golibvirt.Libvirt) (int32, error) { return l.StoragePoolGetAutostart(p.pool) })
	if err != nil || autostart != 1 {
		return false, err
	}
	b.log.InfoContext(s.ctx, "a storage pool that starts with its host is not active; it is started", "pool", p.pool.Name)
	err = s.write("pool.start", "start storage pool", func(l *golibvirt.Libvirt) error { return l.StoragePoolCreate(p.pool, 0) })
	if hasCode(err, golibvirt.ErrOperationInvalid) { // somebody was faster
		active, err := read(s, "storage pool", func(l *golibvirt.Libvirt) (int32, error) { return l.StoragePoolIsActive(p.pool) })
		return active == 1, err
	}
	return err == nil, err
}

// imagePath is where images are kept on this machine on their way to a pool whose files the
// agent does not use itself.
func (b *Backend) imagePath() (string, error) {
	if b.stateDir == "" {
		return "", backends.Errorf(backends.ErrHostFault, "image", "no state directory is configured, which images need on their way to pool %q", b.cfg.StoragePool)
	}
	return filepath.Join(b.stateDir, "images"), nil
}

// imageDir is imagePath, made where it is missing.
func (b *Backend) imageDir() (string, error) {
	dir, err := b.imagePath()
	if err != nil {
		return "", err
	}
	return dir, fileError("image", os.MkdirAll(dir, 0o700))
}
