package libvirt

import (
	"path/filepath"

	golibvirt "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"proxyfleet/internal/backends"
)

// pool finds the configured pool. It must be active: an inactive one may be a file system that
// is not mounted, whose directory would be the root disk's.
func (b *Backend) pool(s *session) (storage, error) {
	p, err := b.anyPool(s)
	if err != nil {
		return nil, err
	}
	if !p.active {
		return nil, backends.Errorf(backends.ErrHostFault, "storage pool",
			"pool %q is not active; start it (virsh pool-start) once its target is mounted", b.cfg.StoragePool)
	}
	return p.storage, nil
}

// poolState is a pool as the daemon describes it.
type poolState struct {
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
	switch desc.Type {
	case "dir", "fs", "netfs":
	default:
		return poolState{}, backends.Errorf(backends.ErrHostFault, "storage pool",
			"pool %q is of type %s; proxies need one with a directory: dir, fs or netfs", b.cfg.StoragePool, desc.Type)
	}
	if desc.Target == nil || !filepath.IsAbs(desc.Target.Path) {
		return poolState{}, backends.Errorf(backends.ErrHostFault, "storage pool", "pool %q has no target directory", b.cfg.StoragePool)
	}
	// A path through a symbolic link gets no AppArmor rule.
	dir, err := filepath.EvalSymlinks(desc.Target.Path)
	if err != nil {
		return poolState{}, fileError("storage pool", err)
	}
	return poolState{storage: place{dir, b.images}, dir: dir, active: active == 1, kind: desc.Type}, nil
}
