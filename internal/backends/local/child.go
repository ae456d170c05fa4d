package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"proxyfleet/internal/backends"
)

// checkLock is how often a child looks whether its lock file is still there, its log not too
// large, and its memory within its limit.
const checkLock = time.Second

// RunChild is the proxy process: what follows Options.Exec are args, the state directory and
// a uid. It returns when it is told to end (SIGTERM, or ctx), when its lock file is gone, or
// at once, without an error, when another process runs for that uid already.
func RunChild(ctx context.Context, args []string) error {
	// Before the lock is taken: a process that has it gets signals.
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, unix.SIGHUP)
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	if len(args) != 2 {
		return errors.New("local-proxy: want a state directory and a uid; this command is for the agent")
	}
	c := child{p: paths{args[0], backends.InstanceName(args[1])}, uid: args[1],
		log: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("pid", os.Getpid())}
	lock, err := os.OpenFile(c.p.file(extLock), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("local-proxy: %w", err)
	}
	defer lock.Close()
	if ok, err := takeLock(lock); err != nil || !ok {
		return err
	}
	if !c.holds(lock) {
		return nil // it was deleted meanwhile
	}
	return c.serve(ctx, lock, reload)
}

type child struct {
	p     paths
	uid   string
	log   *slog.Logger
	proxy proxy
	conf  conf // in force

	clients clientListener
}

// holds reports whether the file that we locked is still the one under its name.
func (c *child) holds(lock *os.File) bool {
	ours, err := lock.Stat()
	if err != nil {
		return true
	}
	named, err := os.Stat(c.p.file(extLock))
	if errors.Is(err, os.ErrNotExist) {
		return false
	}
	return err != nil || os.SameFile(ours, named)
}

func (c *child) serve(ctx context.Context, lock *os.File, reload <-chan os.Signal) error {
	digest, err := c.load()
	if err != nil {
		return c.refuse(digest, backends.ErrTransient, err)
	}
	at := netip.AddrPortFrom(c.conf.Address, uint16(c.conf.Port))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil {
		return c.refuse(digest, listenClass(err), err)
	}
	server := newServer(&c.proxy)
	served := make(chan error, 1)
	c.clients.Listener = listener
	c.limit()
	go func() { served <- server.Serve(&c.clients) }()
	c.say(run{Applied: digest})
	c.log.Info("listening", "address", at.String(), "proxy", c.conf.Mark.Proxy, "uid", c.uid)

	tick := time.NewTicker(checkLock)
	defer tick.Stop()
	for {
		select {
		case <-reload:
			if tried, err := c.load(); err != nil {
				c.log.Error("the configuration was not applied; the former one stays in force", "error", err)
				c.say(run{Applied: digest, Tried: tried, Class: backends.ErrTransient.Error(), Error: err.Error()})
			} else {
				digest = tried
				c.limit()
				c.say(run{Applied: digest})
			}
		case <-tick.C:
			if !c.holds(lock) {
				c.log.Warn("the lock file is gone: ending")
				return server.Close()
			}
			c.tend()
			if used, over := c.conf.Limits.exceeded(); over {
				c.log.Error("more memory than allowed: ending; the agent starts it again", "usedMiB", used, "limitMiB", c.conf.Limits.MemoryMiB)
				return server.Close()
			}
		case err := <-served:
			return err
		case <-ctx.Done():
			c.log.Info("ending")
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace/2)
			defer cancel()
			_ = server.Shutdown(end)
			return server.Close()
		}
	}
}

// load applies the configuration that is on disk.
func (c *child) load() (digest string, err error) {
	data, err := os.ReadFile(c.p.file(extConf))
	if err != nil {
		return "", err
	}
	digest = digestOf(data)
	var next conf
	if err := json.Unmarshal(data, &next); err != nil {
		return digest, err
	}
	if next.Mark.UID != c.uid {
		return digest, fmt.Errorf("the configuration is of uid %s", next.Mark.UID)
	}
	if next.Username == "" && len(next.AllowFrom) == 0 {
		return digest, errors.New("the configuration has no access rule")
	}
	c.conf = next
	c.proxy.apply(next)
	return digest, nil
}

// refuse says why the child ends.
func (c *child) refuse(digest string, class, err error) error {
	c.say(run{Tried: digest, Class: class.Error(), Error: err.Error()})
	return err
}

// say replaces the run file. It need not survive a crash of the machine, as the child does
// not.
func (c *child) say(r run) {
	r.PID = os.Getpid()
	data, _, err := encode(r)
	if err == nil {
		next := filepath.Join(c.p.dir, "."+c.p.name+extRun+".new")
		err = errors.Join(os.WriteFile(next, data, 0o600), os.Rename(next, c.p.file(extRun)))
	}
	if err != nil {
		c.log.Error("cannot tell the agent", "error", err)
	}
}

func listenClass(err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return backends.ErrNoCapacity
	case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return backends.ErrHostFault
	}
	return backends.ErrTransient
}
