package pvefake

import (
	"cmp"
	"net/http"
	"time"
)

// Cut says how a connection breaks.
type Cut int

const (
	// CutNone answers.
	CutNone Cut = iota
	// CutBefore resets the connection; the request was not carried out.
	CutBefore
	// CutAfter carries the request out and loses the answer.
	CutAfter
	// CutMiddle carries the request out and breaks off in the answer's body.
	CutMiddle
)

// Reply is an answer in place of the real one. Statuses 401, 595, 596 and 599
// come without a body, the others with Proxmox's JSON of an error.
type Reply struct {
	Status int
	Text   string            // reason phrase and message; default: the status's usual one
	Errors map[string]string // the errors map of a 400
}

func (r Reply) reply() reply {
	if r.Text == "" {
		r.Text = cmp.Or(proxyTexts[r.Status], http.StatusText(r.Status))
	}
	empty := r.Status == 401 || r.Status >= 595 && r.Status <= 599
	return errorReply(&apiError{status: r.Status, text: r.Text, params: r.Errors, empty: empty})
}

// Action is what happens to one request beside or instead of its handling.
// The zero value handles it.
type Action struct {
	Delay  time.Duration // of real time, first
	Before func()        // then; may change the cluster
	Reply  *Reply        // instead of handling
	After  func()        // when handled, before the answer goes out
	Cut    Cut
}

// Request is one recorded request.
type Request struct {
	Node     string // whose address it came to
	Method   string
	Path     string // decoded, without /api2/json
	Template string // the schema's path: /nodes/{node}/qemu/{vmid}/config; empty when it has none
	Params   map[string]string
	Token    string // user@realm!id as sent, right or wrong; never the secret
	Status   int    // 0 while it runs and when the connection was cut
}

// OnRequest sets the hook that is asked before every request; nil removes it.
// It is called without locks, by several goroutines when requests overlap.
func (c *Cluster) OnRequest(hook func(Request) Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hook = hook
}

// Requests are all requests so far, in order of arrival.
func (c *Cluster) Requests() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Request, len(c.requests))
	for i, r := range c.requests {
		out[i] = *r
	}
	return out
}

// Count is how many requests had this method and schema path, for example
// ("POST", "/nodes/{node}/qemu/{vmid}/clone"); an empty argument fits all.
func (c *Cluster) Count(method, template string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, r := range c.requests {
		if (method == "" || r.Method == method) && (template == "" || r.Template == template) {
			n++
		}
	}
	return n
}

// ForgetRequests sets every count back to zero.
func (c *Cluster) ForgetRequests() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = nil
}

func (c *Cluster) before(req *request) (Action, *Request) {
	rec := &Request{
		Node: req.at, Method: req.http.Method, Path: req.path, Params: map[string]string{},
		Token: tokenName(req.http.Header.Get("Authorization")),
	}
	if req.m != nil {
		rec.Template = req.m.template
	}
	for k, v := range req.params {
		rec.Params[k] = v
	}
	c.mu.Lock()
	hook := c.hook
	c.requests = append(c.requests, rec)
	c.mu.Unlock()
	if hook == nil {
		return Action{}, rec
	}
	return hook(*rec), rec
}

func (c *Cluster) after(rec *Request, rep reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !rep.cut {
		rec.Status = rep.status
	}
}

// NodeDown powers a node off or on: its address refuses, calls that another
// node would pass to it answer 595, and its guests show as unknown.
func (c *Cluster) NodeDown(name string, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.knownNode(name)
	n.down = down
	if n.endpoint != nil {
		n.endpoint.setDown(down)
	}
}

// AddressDown makes one node's address refuse connections while the node and
// its guests go on: only the way there is broken.
func (c *Cluster) AddressDown(name string, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.knownNode(name).endpoint; e != nil {
		e.setDown(down)
	}
}

// CutConnections resets every connection to a node's address, idle or not, as
// a restart of pveproxy does.
func (c *Cluster) CutConnections(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.knownNode(name).endpoint; e != nil {
		e.cutAll()
	}
}

// DaemonDown stops pvedaemon on a node: calls that need root answer 595
// "Connection refused", the rest still works.
func (c *Cluster) DaemonDown(name string, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.knownNode(name).noDaemon = down
}

// ProxyError makes other nodes answer status (595, 596 or 599; 0 for none)
// for calls that they would pass on to this one.
func (c *Cluster) ProxyError(name string, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.knownNode(name).proxyErr = status
}
