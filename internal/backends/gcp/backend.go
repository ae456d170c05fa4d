package gcp

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"

	"proxyfleet/internal/backends"
)

// Kind is this backend's.
const Kind = "gcp"

// DefaultPort is where a proxy listens when its request leaves that open: each has an address of
// its own.
const DefaultPort = 3128

// Backend makes proxies real in one project. See [backends.Backend].
type Backend struct {
	conf    Config
	host    backends.HostConfig
	owner   backends.Owner
	log     *slog.Logger
	api     *api
	records *records
	poll    time.Duration
	watch   time.Duration // between two looks at everything
	regions cache[*computepb.Region]
	shapes  cache[*computepb.MachineType]

	mu    sync.Mutex        // guards zones
	zones map[string]string // uid → zone in which its instance was last seen
}

var (
	_ backends.Backend = (*Backend)(nil)
	_ backends.Watcher = (*Backend)(nil)
)

// New checks the configuration and makes a backend; it reads no credential and makes no request,
// so that an agent starts while Google cannot be reached.
func New(conf Config, host backends.HostConfig, opts Options) (*Backend, error) {
	conf = conf.withDefaults()
	if err := conf.validate(); err != nil {
		return nil, fmt.Errorf("backend gcp: %w", err)
	}
	if err := validateHost(host); err != nil {
		return nil, fmt.Errorf("backend gcp: %w", err)
	}
	if opts.Owner.Installation == "" || opts.Owner.HostID == "" {
		return nil, fmt.Errorf("backend gcp: installation %q and host id %q must be given", opts.Owner.Installation, opts.Owner.HostID)
	}
	if !filepath.IsAbs(opts.StateDir) {
		return nil, fmt.Errorf("backend gcp: state directory %q is not an absolute path", opts.StateDir)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Poll == 0 {
		opts.Poll = time.Second
	}
	a, err := newAPI(conf, opts.Transport, opts.Log)
	if err != nil {
		return nil, fmt.Errorf("backend gcp: %w", err)
	}
	return &Backend{
		conf: conf, host: host, owner: opts.Owner, log: opts.Log, api: a, poll: opts.Poll, watch: 15 * opts.Poll,
		records: &records{dir: filepath.Join(opts.StateDir, "gcp-attempts")}, zones: map[string]string{},
	}, nil
}

// Kind implements [backends.Backend].
func (b *Backend) Kind() string { return Kind }

// InPlace implements [backends.Backend]: what a guest was told at its first boot stays.
func (b *Backend) InPlace() []backends.Field { return nil }

// Close implements [backends.Backend].
func (b *Backend) Close() error {
	b.api.close()
	return nil
}

// seen remembers where an instance is, so that reading it takes one small request.
func (b *Backend) seen(uid, zone string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if zone == "" {
		delete(b.zones, uid)
		return
	}
	b.zones[uid] = zone
}

func (b *Backend) lastZone(uid string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.zones[uid]
}

// cache keeps what seldom changes for a while. The zero value is ready.
type cache[T any] struct {
	mu   sync.Mutex // guards kept
	kept map[string]cached[T]
}

type cached[T any] struct {
	value T
	at    time.Time
}

// get returns what is kept and no older than age, or else what read says.
func (c *cache[T]) get(ctx context.Context, key string, age time.Duration, read func(context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	k, ok := c.kept[key]
	c.mu.Unlock()
	if ok && time.Since(k.at) < age {
		return k.value, nil
	}
	v, err := read(ctx)
	if err != nil {
		return v, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[string]cached[T]{}
	}
	c.kept[key] = cached[T]{v, time.Now()}
	return v, nil
}
