package libvirt

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"proxyfleet/internal/backends"
	"proxyfleet/internal/backends/images"
)

// Kind is this backend's name.
const Kind = "libvirt"

// Backend makes proxies through libvirt. It is safe for concurrent use.
type Backend struct {
	cfg    Config
	host   backends.HostConfig
	owner  backends.Owner
	log    *slog.Logger
	reach  reach
	grace  time.Duration // for a guest to shut down
	images *images.Cache
	// stateDir is the agent's own directory, for images on their way to a pool.
	stateDir string
	volumes  *volumeMemory
	seeds    seeder
	marks    marks
	guests   guests
	// These are time.Now and keepaliveEvery but in tests.
	now        func() time.Time
	signOfLife time.Duration

	// tryKVM is kvmWorks but in tests.
	tryKVM func(device string) error

	mu      sync.Mutex             // guards the fields that follow
	pending map[string]requirement // by uid: admitted, and not yet counted by a marker

	refreshing sync.Mutex // held while the pool is refreshed
}

var (
	_ backends.Backend     = (*Backend)(nil)
	_ backends.Watcher     = (*Backend)(nil)
	_ backends.ImageKeeper = (*Backend)(nil)
	_ backends.Tidier      = (*Backend)(nil)
)

// New checks the configuration and returns a backend. It does not connect: a daemon that is
// down is told by Check and by each call.
func New(cfg Config, host backends.HostConfig, opts Options) (*Backend, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	daemon, err := newReach(cfg)
	if err != nil {
		return nil, err
	}
	if opts.Owner.Installation == "" || opts.Owner.HostID == "" {
		return nil, errors.New("libvirt: the owner of marks is not complete")
	}
	for key, image := range host.Images {
		if (image.URL == "") == (image.File == "") {
			return nil, fmt.Errorf("images.%s: the libvirt backend needs a url or a file", key)
		}
		if image.Digest != "" && !images.ValidDigest(image.Digest) {
			return nil, fmt.Errorf("images.%s.digest: %q is neither sha256:<64 hex digits> nor sha512:<128 hex digits>", key, image.Digest)
		}
		if f := image.Firmware; f != "" && f != "uefi" && f != "bios" {
			return nil, fmt.Errorf("images.%s.firmware: %q is neither uefi nor bios", key, f)
		}
		if f := image.Format; f != "" && f != "qcow2" && f != "raw" {
			return nil, fmt.Errorf("images.%s.format: %q is neither qcow2 nor raw", key, f)
		}
	}
	for key, shape := range host.MachineTypes {
		if shape.VCPUs < 1 || shape.MemoryMiB < 32 {
			return nil, fmt.Errorf("machineTypes.%s: the libvirt backend needs vcpus of at least 1 and memoryMiB of at least 32", key)
		}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.HTTP == nil {
		opts.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	if opts.ShutdownGrace == 0 {
		opts.ShutdownGrace = 2 * time.Minute
	}
	return &Backend{
		cfg: cfg, host: host, owner: opts.Owner, log: opts.Log, reach: daemon, grace: opts.ShutdownGrace,
		images: images.New(images.Options{HTTP: opts.HTTP, Log: opts.Log, ReserveBytes: int64(host.Limits.Reserve.DiskGiB) << 30}),
		seeds:  seeder{vendorData: []byte(host.VendorData), guestAgent: host.InstallGuestAgent == nil || *host.InstallGuestAgent, ipv6: cfg.Network.IPv6},
		marks:  newMarks(), guests: newGuests(), now: time.Now, signOfLife: keepaliveEvery,
		stateDir: opts.StateDir, volumes: newVolumeMemory(),
		tryKVM: kvmWorks, pending: map[string]requirement{},
	}, nil
}

// Kind is "libvirt".
func (b *Backend) Kind() string { return Kind }

// InPlace are the machine type, by a restart, and a larger disk: a guest takes the rest of
// its configuration at its first boot only.
func (b *Backend) InPlace() []backends.Field {
	return []backends.Field{backends.FieldMachineType, backends.FieldDiskGiB}
}

// Close waits for downloads to end, which their callers' contexts do, and takes leave of a
// remote host.
func (b *Backend) Close() error {
	defer b.reach.close()
	b.images.Close()
	return nil
}
