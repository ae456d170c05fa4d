package images

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Options of a cache. The zero value works.
type Options struct {
	// HTTP fetches images. The default has no overall timeout, since Stall bounds it.
	HTTP *http.Client
	Log  *slog.Logger
	// MaxBytes bounds one image, as it is fetched and as it is unpacked; default 32 GiB.
	MaxBytes int64
	// Stall is how long a download may bring no byte; default 60 s.
	Stall time.Duration
	// ReserveBytes of the file system stay free.
	ReserveBytes int64
}

// Report hears what a fetch does, "downloading image" for instance, and how many per cent of
// that are done, 0 where it is unknown. It must not block.
type Report func(step string, percent int)

// Base is an image in the cache.
type Base struct {
	Path        string // absolute
	Format      string // "qcow2" or "raw"
	Digest      string // with its algorithm
	VirtualSize uint64 // bytes
	Source      string // where it came from, for people
}

// Cache fetches images, each once. It is safe for concurrent use.
type Cache struct {
	opts Options

	mu      sync.Mutex         // guards the fields that follow, and those of flights
	flights map[string]*flight // by directory and entry
	running sync.WaitGroup
}

// flight is one fetch that any number of callers wait for. Its fields are guarded by the
// cache's mu, but for base and err, which are set before done is closed.
type flight struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiting map[int]Report
	next    int
	step    string
	percent int

	base Base
	err  error
}

// New returns a cache; directories are named at each call.
func New(opts Options) *Cache {
	if opts.HTTP == nil {
		opts.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = 32 << 30
	}
	if opts.Stall == 0 {
		opts.Stall = time.Minute
	}
	return &Cache{opts: opts, flights: map[string]*flight{}}
}

// Fetch returns the base of s in dir, downloading it when it is not there, and unpacking what
// is compressed with gzip, xz or zstd. report, which may be nil, is not called after Fetch has
// returned. When ctx ends, Fetch returns at once; the download goes on as long as
// somebody else waits for it.
//
// ErrPermanent: the source refuses (4xx), the digest differs, or the image may not be a
// base. ErrNoCapacity: the disk is full; nothing of the download is kept. ErrTransient:
// anything that may pass; what was downloaded is kept and resumed.
func (c *Cache) Fetch(ctx context.Context, dir string, s Source, report Report) (Base, error) {
	if err := s.validate(); err != nil {
		return Base{}, err
	}
	if err := ctx.Err(); err != nil {
		return Base{}, stopped(err, s)
	}
	f, id := c.join(ctx, dir, s, report)
	select {
	case <-f.done:
		c.leave(f, id)
		return f.base, f.err
	case <-ctx.Done():
		c.leave(f, id)
		return Base{}, stopped(ctx.Err(), s)
	}
}

// join adds a waiter to the flight of s, starting one if there is none.
func (c *Cache) join(ctx context.Context, dir string, s Source, report Report) (*flight, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := dir + "\x00" + s.entry() + "\x00" + s.Digest
	f := c.flights[key]
	if f == nil {
		// The flight outlives the caller that started it, but keeps its values: the span and
		// the labelled steps.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &flight{done: make(chan struct{}), cancel: cancel, waiting: map[int]Report{}}
		c.flights[key] = f
		c.running.Go(func() {
			base, err := c.fetch(own, dir, s, func(step string, percent int) { c.progress(f, step, percent) })
			c.mu.Lock()
			if c.flights[key] == f {
				delete(c.flights, key)
			}
			f.base, f.err = base, err
			c.mu.Unlock()
			cancel()
			close(f.done)
		})
	}
	id := f.next
	f.next++
	if report == nil {
		report = func(string, int) {}
	}
	f.waiting[id] = report
	if f.step != "" {
		report(f.step, f.percent)
	}
	return f, id
}

// leave removes a waiter; the last one stops the flight, which nobody joins any more.
func (c *Cache) leave(f *flight, id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(f.waiting, id)
	if len(f.waiting) > 0 {
		return
	}
	f.cancel()
	for key, other := range c.flights {
		if other == f {
			delete(c.flights, key)
		}
	}
}

func (c *Cache) progress(f *flight, step string, percent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if step == f.step && percent == f.percent {
		return
	}
	f.step, f.percent = step, percent
	for _, report := range f.waiting {
		report(step, percent)
	}
}

// Close waits until no download is under way. Callers' contexts end them.
func (c *Cache) Close() { c.running.Wait() }
