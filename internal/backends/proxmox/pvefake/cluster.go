package pvefake

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// Options of a cluster. The zero value is a PVE 9 cluster of the nodes pve1
// and pve2, each with its own address.
type Options struct {
	Version Version
	Nodes   []string // default pve1, pve2
	// Speed is how many seconds pass on the nodes in one real second; default
	// 200, so the 10 s wait for a lock file takes 50 ms.
	Speed float64
	// StatInterval is how often (in the nodes' time) pvestatd renews what
	// /cluster/resources and /nodes say; default 10 s, as on a node. A VM that
	// appears between two rounds has neither name nor known status there.
	StatInterval time.Duration
	// InProcess opens no sockets; requests come through RoundTripper.
	InProcess bool
	// SchemaDir is where the API schema lies; default FindSchema.
	SchemaDir string
}

// Cluster is a Proxmox VE cluster. Its methods may be called at any time and
// from hooks.
type Cluster struct {
	t       testing.TB
	version Version
	schema  schema
	clock   clock
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup // tasks, pvestatd and listeners
	pki     *pki

	mu        sync.Mutex // guards the fields that follow and everything they hold
	changed   chan struct{}
	nodes     map[string]*node
	order     []string // the nodes in the order of Options
	vms       map[int]*vm
	storages  map[string]*storage
	users     map[string]*principal
	tokens    map[string]*principal
	pools     map[string]map[string]bool // pool → paths of its members
	locks     map[int]*lockFile
	durations map[string]time.Duration
	tags      tagPolicy
	tasks     map[string]*task
	taskList  []*task // oldest first
	faults    []*TaskFault
	seq       int
	hook      func(Request) Action
	requests  []*Request
	statTime  time.Duration
}

type node struct {
	name     string
	down     bool // powered off or cut off
	noDaemon bool // pvedaemon stopped
	cpus     int
	memory   int64
	memUsed  int64
	disk     int64
	bridges  map[string]bool
	lastSeen string // status as pvestatd and the cluster last knew it
	endpoint *endpoint
	proxyErr int // status of requests proxied to this node by another; 0 none
}

// New makes the cluster and ends it with the test. It fails the test at once
// when the schema is not there, and at the end when a request asked for
// something that the schema has and this package does not model.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.SchemaDir == "" {
		dir, err := FindSchema()
		if err != nil {
			t.Fatalf("pvefake: %v", err)
		}
		o.SchemaDir = dir
	}
	s, err := loadSchema(o.SchemaDir, o.Version)
	if err != nil {
		t.Fatalf("pvefake: %v", err)
	}
	if len(o.Nodes) == 0 {
		o.Nodes = []string{"pve1", "pve2"}
	}
	if o.Speed == 0 {
		o.Speed = 200
	}
	if o.StatInterval == 0 {
		o.StatInterval = 10 * time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Cluster{
		t: t, version: o.Version, schema: s, ctx: ctx, stop: stop,
		clock:   clock{start: time.Now(), speed: o.Speed},
		changed: make(chan struct{}), order: slices.Clone(o.Nodes), statTime: o.StatInterval,
		nodes: map[string]*node{}, vms: map[int]*vm{}, storages: map[string]*storage{},
		users: map[string]*principal{}, tokens: map[string]*principal{},
		pools: map[string]map[string]bool{}, tasks: map[string]*task{}, locks: map[int]*lockFile{}, durations: map[string]time.Duration{},
	}
	for _, name := range o.Nodes {
		c.nodes[name] = &node{
			name: name, cpus: 8, memory: 32 << 30, memUsed: 2 << 30, disk: 100 << 30,
			bridges: map[string]bool{"vmbr0": true}, lastSeen: "online",
		}
	}
	c.addDefaultStorages()
	c.users["root@pam"] = &principal{enabled: true, grants: []Grant{{Path: "/", Privileges: Privileges(o.Version)}}}
	if !o.InProcess {
		c.listen()
	}
	c.work.Add(1)
	go c.pvestatd()
	t.Cleanup(c.Close)
	return c
}

// Close ends the cluster: connections are cut and tasks stop where they are.
// New arranges for it; calling it twice is harmless.
func (c *Cluster) Close() {
	c.stop()
	c.mu.Lock()
	for _, n := range c.nodes {
		if n.endpoint != nil {
			n.endpoint.close()
		}
	}
	c.mu.Unlock()
	c.work.Wait()
}

// Version is the version that the cluster speaks.
func (c *Cluster) Version() Version { return c.version }

// Now is the nodes' time.
func (c *Cluster) Now() time.Time { return c.clock.now() }

// Real is how long d of the nodes' time takes in the test.
func (c *Cluster) Real(d time.Duration) time.Duration { return c.clock.real(d) }

// RoundTripper serves requests without a network, as if sent to the first
// node's address. A cut connection is an error of the round trip.
func (c *Cluster) RoundTripper() http.RoundTripper { return inProcess{c} }

type inProcess struct{ c *Cluster }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	rep := p.c.serve(r, p.c.order[0])
	if rep.cut {
		return nil, errCut
	}
	resp := rep.response(r)
	return resp, nil
}

// sleep gives up the mutex for d of the nodes' time. The caller holds it.
func (c *Cluster) sleep(ctx context.Context, d time.Duration) error {
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.clock.sleep(ctx, d)
}

// notify wakes everybody who waits in await. The caller holds the mutex.
func (c *Cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until ok or for d of the nodes' time; it reports whether ok came
// true. The caller holds the mutex, which is given up between the looks.
func (c *Cluster) await(ctx context.Context, d time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, c.clock.real(d))
	defer cancel()
	for !ok() {
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return ok()
		}
	}
	return true
}

// knownNode is a node that a test names; see known.
func (c *Cluster) knownNode(name string) *node {
	if n := c.nodes[name]; n != nil {
		return n
	}
	c.t.Errorf("pvefake: no node %q", name)
	return &node{}
}
