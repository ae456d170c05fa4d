package bustest

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"proxyfleet/internal/bus"
)

// Cluster is three embedded servers that replicate their streams.
type Cluster struct {
	t       testing.TB
	servers []*natsserver.Server
}

// StartCluster starts three servers and waits until they have elected a leader.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	ports := freePorts(t, 3) // every server has to know all routes before it starts
	var routes []*url.URL
	for _, p := range ports {
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(p))})
	}
	for n, port := range ports {
		opts := &natsserver.Options{
			ServerName: fmt.Sprintf("n%d", n), Host: "127.0.0.1", Port: -1,
			JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
			Cluster: natsserver.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port}, Routes: routes,
		}
		srv, err := natsserver.NewServer(opts)
		if err != nil {
			t.Fatalf("start server %d: %v", n, err)
		}
		srv.Start()
		t.Cleanup(func() {
			srv.Shutdown()
			srv.WaitForShutdown()
		})
		c.servers = append(c.servers, srv)
	}
	for n, srv := range c.servers {
		if !srv.ReadyForConnections(Deadline) {
			t.Fatalf("server %d is not ready", n)
		}
	}
	Eventually(t, "a leader of the cluster", func() error {
		for _, s := range c.servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(c.servers) {
				return nil
			}
		}
		return fmt.Errorf("there is none")
	})
	return c
}

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
	for _, s := range c.servers {
		urls = append(urls, s.ClientURL())
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

// StopLeader stops the server that leads a stream, for good.
func (c *Cluster) StopLeader(js jetstream.JetStream, stream string) {
	c.t.Helper()
	s, err := js.Stream(Context(c.t), stream)
	if err != nil {
		c.t.Fatal(err)
	}
	leader := s.CachedInfo().Cluster.Leader
	for _, srv := range c.servers {
		if srv.Name() == leader {
			srv.Shutdown()
			srv.WaitForShutdown()
			return
		}
	}
	c.t.Fatalf("no server is %q, the leader of %s", leader, stream)
}
