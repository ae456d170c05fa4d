package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"proxyfleet/internal/backends"
)

// Backend implements [backends.Backend] and [backends.Watcher].
type Backend struct {
	settings
	owner  backends.Owner
	exec   []string
	log    *slog.Logger
	feed   backends.Feed
	keeper keeper
	// alloc makes "is the port free" and "take it" one step.
	alloc sync.Mutex
}

var (
	_ backends.Backend = (*Backend)(nil)
	_ backends.Watcher = (*Backend)(nil)
)

// New opens the backend and makes its state directory. It starts nothing.
func New(cfg Config, opts Options) (*Backend, error) {
	s, err := cfg.settings()
	if err != nil {
		return nil, err
	}
	if len(opts.Exec) == 0 {
		return nil, errors.New("local: no command to start children with")
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("backend.state: %w", err)
	}
	b := &Backend{settings: s, owner: opts.Owner, exec: opts.Exec, log: opts.Log}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	b.keeper.ended = func(uid string) { b.feed.Send(backends.Event{UID: uid, Reason: "Exited"}) }
	return b, nil
}

// Kind implements [backends.Backend].
func (b *Backend) Kind() string { return "local" }

// InPlace implements [backends.Backend].
func (b *Backend) InPlace() []backends.Field {
	return []backends.Field{backends.FieldAuth, backends.FieldAllowFrom, backends.FieldEgress}
}

// Close implements [backends.Backend]. Children go on.
func (b *Backend) Close() error {
	b.keeper.close()
	return nil
}

// Offer implements [backends.Backend]. A process takes no image and no machine type.
func (b *Backend) Offer(ctx context.Context) (backends.Offer, error) {
	return backends.Offer{Capacity: backends.Capacity{VCPUs: -1, MemoryMiB: -1, DiskGiB: -1, Slots: b.slots()}}, ctx.Err()
}

// Check implements [backends.Backend]: the state directory, each address, and each source
// address that is not listened on as well.
func (b *Backend) Check(ctx context.Context) []backends.TargetHealth {
	checks := []backends.TargetHealth{b.checkState()}
	free := b.free()
	for _, a := range b.addresses {
		c := checkAddress(ctx, "address/", a, "backend.addresses")
		c.Details = map[string]string{"freePorts": strconv.Itoa(free[a])}
		checks = append(checks, c)
	}
	for _, a := range b.addresses {
		for _, source := range b.sources[a] {
			if !slices.Contains(b.addresses, source) {
				checks = append(checks, checkAddress(ctx, "egress/", source, "backend.egress"))
			}
		}
	}
	return checks
}

// checkAddress sees whether an address is one of this host's.
func checkAddress(ctx context.Context, kind string, a netip.Addr, key string) backends.TargetHealth {
	c := backends.TargetHealth{Target: kind + a.String(), Code: backends.CheckOK}
	if err := canListen(ctx, netip.AddrPortFrom(a, 0)); err != nil {
		c.Code = backends.CheckNetworkNotFound
		c.Message = fmt.Sprintf("cannot listen on %s: %v; add it to an interface or take it out of %s", a, err, key)
	}
	return c
}

// free counts the ports of each address that no proxy of this directory has.
func (b *Backend) free() map[netip.Addr]int {
	out := map[netip.Addr]int{}
	for _, a := range b.addresses {
		out[a] = b.last - b.first + 1
	}
	taken, _, _, err := b.taken("")
	if err != nil {
		return nil // checkState says what is wrong with the directory
	}
	for at := range taken {
		if port := int(at.Port()); port >= b.first && port <= b.last {
			out[at.Addr()]--
		}
	}
	return out
}

func (b *Backend) checkState() backends.TargetHealth {
	c := backends.TargetHealth{Target: "state", Code: backends.CheckOK, Details: map[string]string{"directory": b.dir}}
	f, err := os.CreateTemp(b.dir, ".check-*")
	if err == nil {
		_, err = f.WriteString("written to see that it can be\n")
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		c.Code, c.Message = backends.CheckStorageNotFound, fmt.Sprintf("cannot write to %s: %v", b.dir, err)
	}
	return c
}

func canListen(ctx context.Context, a netip.AddrPort) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", a.String())
	if err != nil {
		return err
	}
	return l.Close()
}

// names lists the instance names that have any of our files.
func (b *Backend) names() ([]string, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, e := range entries {
		for _, ext := range marked {
			if name, ok := strings.CutSuffix(e.Name(), ext); ok && !strings.HasPrefix(name, ".") {
				seen[name] = true
			}
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}
