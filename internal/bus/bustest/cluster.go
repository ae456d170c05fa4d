package bustest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// Cluster is three servers that replicate their streams. Their routes go through relays, so
// that each can be parted from the others.
type Cluster struct {
	t      testing.TB
	launch Launch
	nodes  []Node
	kill   []func()
	wires  map[[2]int]*Wire // from one server to another
}

// Node is what one server of a cluster is to be.
type Node struct {
	Name        string
	StoreDir    string
	ClientPort  int
	ClusterPort int
	Routes      []string // URLs of the others
}

// Launch starts a server of a cluster and returns what kills it.
type Launch func(testing.TB, Node) (kill func())

// ClusterName is what the servers of a [Cluster] call it.
const ClusterName = "test"

// unreachable is what servers tell each other as the address of their routes: nobody listens
// there, so no route goes past the relays.
const unreachable = "127.0.0.1:9"

// Embedded launches servers within the test's own process.
func Embedded(t testing.TB, n Node) func() {
	t.Helper()
	opts := &natsserver.Options{
		ServerName: n.Name, Host: "127.0.0.1", Port: n.ClientPort,
		JetStream: true, StoreDir: n.StoreDir, NoSigs: true, NoLog: true,
		Cluster: natsserver.ClusterOpts{Name: ClusterName, Host: "127.0.0.1", Port: n.ClusterPort, Advertise: unreachable},
	}
	for _, r := range n.Routes {
		u, err := url.Parse(r)
		if err != nil {
			t.Fatal(err)
		}
		opts.Routes = append(opts.Routes, u)
	}
	srv, err := natsserver.NewServer(opts)
	if err != nil {
		t.Fatalf("start server %s: %v", n.Name, err)
	}
	srv.Start()
	return func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}
}

// Config is the configuration file of a server that is a process.
func (n Node) Config() string {
	return fmt.Sprintf("server_name: %s\nhost: 127.0.0.1\nport: %d\njetstream: {store_dir: %q}\ncluster: {name: %s, listen: \"127.0.0.1:%d\", advertise: %q, routes: [%s]}\n",
		n.Name, n.ClientPort, n.StoreDir, ClusterName, n.ClusterPort, unreachable, strings.Join(n.Routes, ", "))
}

// StartCluster starts three embedded servers and waits until they have elected a leader.
func StartCluster(t testing.TB) *Cluster { return StartClusterOf(t, Embedded) }

// StartClusterOf is StartCluster with servers of another kind.
func StartClusterOf(t testing.TB, launch Launch) *Cluster {
	t.Helper()
	c := &Cluster{t: t, launch: launch, wires: map[[2]int]*Wire{}}
	ports := freePorts(t, 6) // every server has to know all routes before it starts
	for n := range 3 {
		c.nodes = append(c.nodes, Node{Name: fmt.Sprintf("n%d", n), StoreDir: t.TempDir(), ClientPort: ports[n], ClusterPort: ports[3+n]})
	}
	for from := range c.nodes {
		for to := range c.nodes {
			if from != to {
				w := NewWire(t, loopback(c.nodes[to].ClusterPort))
				c.wires[[2]int{from, to}] = w
				c.nodes[from].Routes = append(c.nodes[from].Routes, "nats-route://"+w.Address())
			}
		}
	}
	c.kill = make([]func(), len(c.nodes))
	for n := range c.nodes {
		c.Start(n)
	}
	t.Cleanup(func() {
		for n := range c.nodes {
			c.Kill(n)
		}
	})
	_, js := c.Connect("test")
	Eventually(t, "a leader of the cluster", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // a question that comes too early has no answer
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err
	})
	return c
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Start starts a server that was killed.
func (c *Cluster) Start(n int) {
	c.t.Helper()
	c.kill[n] = c.launch(c.t, c.nodes[n])
}

// Kill kills a server, if it runs; its store stays.
func (c *Cluster) Kill(n int) {
	if c.kill[n] != nil {
		c.kill[n]()
		c.kill[n] = nil
	}
}

// Part cuts a server off from the two others; Join ends that.
func (c *Cluster) Part(n int) { c.wiresOf(n, (*Wire).Cut) }

// Join ends Part.
func (c *Cluster) Join(n int) { c.wiresOf(n, (*Wire).Heal) }

func (c *Cluster) wiresOf(n int, do func(*Wire)) {
	for ends, w := range c.wires {
		if ends[0] == n || ends[1] == n {
			do(w)
		}
	}
}

// URL is where clients reach one server.
func (c *Cluster) URL(n int) string { return "nats://" + loopback(c.nodes[n].ClientPort) }

// Wire is a relay to one server, for a client that must not look for another one.
func (c *Cluster) Wire(n int) *Wire { return NewWire(c.t, loopback(c.nodes[n].ClientPort)) }

// freePorts are ports that nobody listened on a moment ago.
func freePorts(t testing.TB, count int) []int {
	t.Helper()
	var ports []int
	for range count {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // not before all are chosen
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// Connect returns a connection with the project's own options that knows all servers.
func (c *Cluster) Connect(name string) (*nats.Conn, jetstream.JetStream) {
	c.t.Helper()
	var urls []string
	for n := range c.nodes {
		urls = append(urls, c.URL(n))
	}
	cfg := bus.ClientConfig{URL: strings.Join(urls, ",")}
	nc, err := bus.Connect(cfg, name, Log(c.t))
	if err != nil {
		c.t.Fatalf("connect: %v", err)
	}
	c.t.Cleanup(nc.Close)
	js, err := bus.JetStream(nc, cfg)
	if err != nil {
		c.t.Fatalf("JetStream: %v", err)
	}
	return nc, js
}

// Open opens the installation on a connection of its own.
func (c *Cluster) Open(name string) *bus.Fleet {
	c.t.Helper()
	nc, js := c.Connect(name)
	f, err := bus.Open(Context(c.t), nc, js, bus.Names{}, "", Log(c.t))
	if err != nil {
		c.t.Fatalf("open the fleet: %v", err)
	}
	return f
}

// Leader is the server that leads a stream.
func (c *Cluster) Leader(js jetstream.JetStream, stream string) int {
	c.t.Helper()
	found := -1
	Eventually(c.t, "a leader of "+stream, func() error {
		s, err := js.Stream(Context(c.t), stream)
		if err != nil {
			return err
		}
		for n, node := range c.nodes {
			if node.Name == s.CachedInfo().Cluster.Leader {
				found = n
				return nil
			}
		}
		return fmt.Errorf("no server is %q", s.CachedInfo().Cluster.Leader)
	})
	return found
}

// StopLeader stops the server that leads a stream, for good.
func (c *Cluster) StopLeader(js jetstream.JetStream, stream string) {
	c.t.Helper()
	c.Kill(c.Leader(js, stream))
}
