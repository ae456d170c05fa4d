package pvefake

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	apiPrefix = "/api2/json"
	// maxForm is the largest body that is not an upload: 512 KiB.
	maxForm = 512 << 10
	// maxRefused is how much of a refused upload is read before the answer.
	// Proxmox reads none; what the client still sends then resets the
	// connection, which the network's buffers hide for a small body.
	maxRefused = 1 << 20
	// authDelay is how long every 401 takes.
	authDelay = 3 * time.Second
)

// request is one call on its way through the server.
type request struct {
	c      *Cluster
	http   *http.Request
	at     string // node whose pveproxy took it
	m      *method
	who    caller
	path   string // without apiPrefix, decoded
	params map[string]string
	node   *node  // the node it runs on
	vmid   int    // 0 when the path has none
	null   string // a parameter that was null in a JSON body, or ""
	file   []byte // uploaded file
	sent   string // its file name
}

// serve answers one request that arrived at a node's address.
func (c *Cluster) serve(r *http.Request, at string) reply {
	req := &request{c: c, http: r, at: at}
	req.path, _ = strings.CutPrefix(r.URL.Path, apiPrefix)
	var vars map[string]string
	req.m, vars = c.schema.find(r.Method, req.path)
	body, bodyErr := req.readParams(vars)
	act, rec := c.before(req)
	rep := c.answer(req, body, bodyErr, act)
	c.after(rec, rep)
	if act.After != nil {
		act.After()
	}
	switch act.Cut {
	case CutAfter:
		rep.cut = true
	case CutMiddle:
		rep.truncate, rep.close = true, true
	}
	return rep
}

func (c *Cluster) answer(req *request, body bodyKind, bodyErr error, act Action) reply {
	if act.Delay > 0 {
		t := time.NewTimer(act.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.ctx.Done():
		}
	}
	if act.Before != nil {
		act.Before()
	}
	if act.Cut == CutBefore || c.ctx.Err() != nil {
		return reply{cut: true}
	}
	if act.Reply != nil {
		return act.Reply.reply()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := c.handle(req, body, bodyErr)
	if err == nil {
		return dataReply(data)
	}
	e, ok := err.(*apiError)
	if !ok {
		e = &apiError{status: 500, text: err.Error()}
	}
	return errorReply(e)
}

// handle follows the order of pveproxy: HTTP, authentication, body, handler,
// privileges, proxying to the node, parameters, the call itself.
func (c *Cluster) handle(req *request, body bodyKind, bodyErr error) (any, error) {
	r := req.http
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete:
	default:
		return nil, &apiError{status: 501, text: "method '" + r.Method + "' not available", empty: true}
	}
	if len(r.TransferEncoding) > 0 {
		return nil, httpErr(501, "chunked transfer encoding not supported")
	}
	var cookie string
	if ck, err := r.Cookie("PVEAuthCookie"); err == nil {
		cookie = ck.Value
	}
	var err error
	if req.who, err = c.authenticate(r.Header.Get("Authorization"), cookie); err != nil {
		_ = c.sleep(c.ctx, authDelay)
		return nil, refuseUpload(req, err)
	}
	if body == bodyUpload && req.m != nil {
		if err := c.checkMethod(req.who, req.m.Perms, req.params); err != nil {
			err.(*apiError).empty = true
			return nil, refuseUpload(req, err)
		}
	}
	if bodyErr != nil {
		return nil, bodyErr
	}
	if req.m == nil {
		return nil, &apiError{status: 501, text: "Method '" + r.Method + " " + req.path + "' not implemented"}
	}
	if err := c.checkMethod(req.who, req.m.Perms, req.params); err != nil {
		return nil, err
	}
	if err := c.route(req); err != nil {
		return nil, err
	}
	if err := req.m.validate(req.params); err != nil {
		return nil, err
	}
	h := handlers[req.m.key()]
	if h == nil {
		c.t.Errorf("pvefake: %s is in the API but not modelled here", req.m.key())
		return nil, &apiError{status: 501, text: "pvefake does not model " + req.m.key()}
	}
	req.dropNulls()
	req.vmid, _ = strconv.Atoi(req.params["vmid"])
	return h(req)
}

// refuseUpload turns the refusal of a large upload into a reset connection:
// the body is not read, so the client is still writing when it is closed.
func refuseUpload(req *request, err error) error {
	if req.http.ContentLength > maxRefused {
		return &apiError{cut: true}
	}
	return err
}

// proxyTexts are AnyEvent::HTTP's own statuses, which pveproxy passes on when
// it cannot reach the node that a call is for.
var proxyTexts = map[int]string{
	595: "No route to host",
	596: "tls_process_server_certificate: certificate verify failed",
	599: "Too many redirections",
}

// route decides which node runs the call and whether it can be reached.
func (c *Cluster) route(req *request) error {
	local := c.nodes[req.at]
	req.node = local
	name, named := req.params["node"]
	if named && name != "localhost" {
		req.node = c.nodes[name]
		if req.node == nil {
			return die("hostname lookup '%s' failed - failed to get address info for: %s: Name or service not known", name, name)
		}
	}
	if req.m.ProxyTo != "" && req.node != local {
		if code := req.node.proxyErr; code != 0 {
			return &apiError{status: code, text: proxyTexts[code], empty: true}
		}
		if req.node.down {
			return &apiError{status: 595, text: proxyTexts[595], empty: true}
		}
	}
	runs := req.node
	if req.m.ProxyTo == "" {
		runs = local
	}
	if req.m.Protected == 1 && runs.noDaemon {
		return &apiError{status: 595, text: "Connection refused", empty: true}
	}
	return nil
}

// dropNulls takes null parameters away: to most calls they do not exist.
func (r *request) dropNulls() {
	for _, k := range slices.Sorted(maps.Keys(r.params)) {
		if r.params[k] == jsonNull {
			r.null = k
			delete(r.params, k)
		}
	}
}

// flag reads a boolean parameter.
func (r *request) flag(name string) bool { return r.params[name] == "1" }

// int reads an integer parameter, or def.
func (r *request) int(name string, def int) int {
	if n, err := strconv.Atoi(r.params[name]); err == nil {
		return n
	}
	return def
}
