package proxmox

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/proxmox/pve"
)

// Kind is this backend's.
const Kind = "proxmox"

// DefaultPort is where a proxy listens when its request leaves that open: each has an
// address of its own.
const DefaultPort = 3128

// Backend makes proxies real on one cluster. See [backends.Backend].
type Backend struct {
	conf     Config
	host     backends.HostConfig
	owner    backends.Owner
	ownerTag string
	log      *slog.Logger
	api      *pve.Client
	inv      *inventory
	marks    *markCache
	records  *records
	promised *promises
	poll     time.Duration // between two looks at a VM that is about to change
	watchMin time.Duration // the shortest pause between two looks at the cluster

	mu    sync.Mutex // guards slots
	slots map[int]chan struct{}
}

var (
	_ backends.Backend = (*Backend)(nil)
	_ backends.Watcher = (*Backend)(nil)
)

// New checks the configuration and makes a backend; it reads no credential and makes no
// request, so that an agent starts while its cluster is away.
func New(conf Config, host backends.HostConfig, opts Options) (*Backend, error) {
	conf = conf.withDefaults()
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("backend proxmox: %w", err)
	}
	if !ownerForm.MatchString(opts.Owner.Installation) || !ownerForm.MatchString(opts.Owner.HostID) {
		return nil, fmt.Errorf("backend proxmox: installation %q and host id %q must be ULIDs", opts.Owner.Installation, opts.Owner.HostID)
	}
	if !filepath.IsAbs(opts.StateDir) {
		return nil, fmt.Errorf("backend proxmox: state directory %q is not an absolute path", opts.StateDir)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Poll == 0 {
		opts.Poll = time.Second
	}
	api, err := pve.New(pve.Config{URLs: conf.URLs, TokenFile: conf.TokenFile, CA: conf.CA, Fingerprint: conf.Fingerprint,
		Timeout: conf.RequestTimeout, TaskPoll: opts.Poll / 5, Log: opts.Log})
	if err != nil {
		return nil, fmt.Errorf("backend proxmox: %w", err)
	}
	return &Backend{
		conf: conf, host: host, owner: opts.Owner, ownerTag: ownerTag(opts.Owner), log: opts.Log, api: api,
		inv: &inventory{read: api.Resources}, marks: &markCache{}, promised: &promises{},
		records: &records{dir: filepath.Join(opts.StateDir, "proxmox-clones")}, slots: map[int]chan struct{}{}, poll: opts.Poll, watchMin: 3 * opts.Poll,
	}, nil
}

// Kind implements [backends.Backend].
func (b *Backend) Kind() string { return Kind }

// InPlace implements [backends.Backend]: what a guest was told at its first boot stays.
func (b *Backend) InPlace() []backends.Field { return nil }

// Close implements [backends.Backend].
func (b *Backend) Close() error {
	b.api.Close()
	return nil
}

// allowed reports whether a node may get proxies.
func (b *Backend) allowed(node string) bool {
	return len(b.conf.Nodes) == 0 || slices.Contains(b.conf.Nodes, node)
}

// looksOurs reports whether a VM may be one of ours by what the cluster's listing says,
// so that its configuration is worth reading: it has our tag, or the name of a proxy and no
// other agent's tag.
func (b *Backend) looksOurs(v pve.VM) bool {
	if v.Type != "qemu" || v.Template {
		return false
	}
	return slices.Contains(v.Tags, b.ownerTag) || strings.HasPrefix(v.Name, "pf-") && !slices.ContainsFunc(v.Tags, isOwnerTag)
}
