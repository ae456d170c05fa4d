package pvefake

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

var errCut = errors.New("pvefake: connection cut")

// endpoint is one node's pveproxy. The HTTP loop is our own because
// net/http.Server cannot send a reason phrase, where Proxmox puts its texts,
// and because pveproxy speaks HTTP/1.1 only.
type endpoint struct {
	node string
	ln   net.Listener

	mu    sync.Mutex // guards the fields that follow; taken after Cluster.mu
	cert  *tls.Certificate
	conns map[net.Conn]bool
	down  bool
}

// URL is the address of a node: https://127.0.0.1:port.
func (c *Cluster) URL(node string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return "https://" + c.nodes[node].endpoint.ln.Addr().String()
}

// URLs are the addresses of all nodes in the order of Options.Nodes.
func (c *Cluster) URLs() []string {
	var out []string
	for _, n := range c.order {
		out = append(out, c.URL(n))
	}
	return out
}

func (c *Cluster) listen() {
	var err error
	if c.pki, err = newPKI(); err != nil {
		c.t.Fatalf("pvefake: %v", err)
	}
	for _, name := range c.order {
		cert, err := c.pki.issue(name)
		if err != nil {
			c.t.Fatalf("pvefake: %v", err)
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			c.t.Fatalf("pvefake: %v", err)
		}
		e := &endpoint{node: name, ln: ln, cert: cert, conns: map[net.Conn]bool{}}
		c.nodes[name].endpoint = e
		c.work.Add(1)
		go c.accept(e)
	}
}

func (c *Cluster) accept(e *endpoint) {
	defer c.work.Done()
	conf := &tls.Config{
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.cert, nil
		},
	}
	for {
		raw, err := e.ln.Accept()
		if err != nil {
			return
		}
		if !e.track(raw) {
			reset(raw)
			continue
		}
		c.work.Add(1)
		go func() {
			defer c.work.Done()
			defer e.untrack(raw)
			c.serveConn(tls.Server(raw, conf), raw, e.node)
		}()
	}
}

// serveConn answers requests on one connection until it ends.
func (c *Cluster) serveConn(conn *tls.Conn, raw net.Conn, node string) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		req.RemoteAddr = raw.RemoteAddr().String()
		rep := c.serve(req, node)
		if rep.cut {
			reset(raw)
			return
		}
		w := bufio.NewWriter(conn)
		err = rep.response(req).Write(w)
		// Closing with data unread would reset the connection and might lose
		// the answer on its way.
		_, _ = io.Copy(io.Discard, req.Body)
		if w.Flush() != nil || err != nil || rep.close || req.Close {
			return
		}
	}
}

// reset ends a connection as a peer that is not there does.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func (e *endpoint) track(conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down {
		return false
	}
	e.conns[conn] = true
	return true
}

func (e *endpoint) untrack(conn net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, conn)
}

func (e *endpoint) cutAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for conn := range e.conns {
		reset(conn)
	}
}

func (e *endpoint) setDown(down bool) {
	e.mu.Lock()
	e.down = down
	e.mu.Unlock()
	if down {
		e.cutAll()
	}
}

func (e *endpoint) setCert(cert *tls.Certificate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cert = cert
}

func (e *endpoint) close() {
	_ = e.ln.Close()
	e.setDown(true)
}
