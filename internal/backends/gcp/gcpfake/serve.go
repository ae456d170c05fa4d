package gcpfake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxBody is the largest body that is read; Google's frontends refuse more than 10 MiB.
const maxBody = 10 << 20

var errCut = errors.New("gcpfake: connection cut")

// call is one request on its way through the server.
type call struct {
	s       *Server
	ctx     context.Context // of the HTTP request
	m       *method
	vars    map[string]string
	query   url.Values
	body    object
	project string
	scope   string // "zones/us-central1-a", "regions/us-central1", "global"
	now     time.Time
}

// ServeHTTP answers one request: it is recorded, the hook is asked, then authentication, rate,
// path, query, place, body, permissions, replay and at last the method itself.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		answer(w, nil, &Error{Code: 413, Reason: "uploadTooLarge", Message: "Request too large"})
		return
	}
	m, vars, pathKnown := s.discovery.find(r.Method, r.URL)
	act, rec := s.before(r, m, body)
	s.sleep(r.Context(), act.Delay)
	if act.Before != nil {
		act.Before()
	}
	if act.Cut == CutBefore {
		panic(http.ErrAbortHandler)
	}
	var out object
	switch {
	case act.Error != nil:
		err = act.Error
	case r.URL.Path == tokenPath:
		s.grant(w, body)
		return
	case m == nil:
		err = s.noMethod(r, pathKnown)
	default:
		c := &call{s: s, ctx: r.Context(), m: m, vars: vars, query: r.URL.Query()}
		out, err = s.handle(c, r, body)
	}
	if act.After != nil {
		act.After()
	}
	switch act.Cut {
	case CutAfter:
		panic(http.ErrAbortHandler)
	case CutMiddle:
		w.Header().Set("Content-Length", "1000000")
		_, _ = io.WriteString(w, `{"kind": "compute#`)
		panic(http.ErrAbortHandler)
	}
	s.after(rec, err)
	answer(w, out, err)
}

// sleep ends early when nobody waits any more.
func (s *Server) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

// noMethod is the answer to a path that the copy of the discovery document does not have: either
// the API has no such path, or it is not modelled here. A test must not go on either way.
func (s *Server) noMethod(r *http.Request, pathKnown bool) error {
	if pathKnown {
		return &Error{Code: 405, Plain: "<!DOCTYPE html>\n<title>Error 405 (Method Not Allowed)!!1</title>\n"}
	}
	s.t.Errorf("gcpfake: %s %s is no method of the API, or not modelled here", r.Method, r.URL.Path)
	return &Error{Code: 404, Plain: "<!DOCTYPE html>\n<title>Error 404 (Not Found)!!1</title>\n"}
}

func (s *Server) handle(c *call, r *http.Request, body []byte) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	c.now = time.Now()
	if err := s.authenticate(r.Header.Get("Authorization")); err != nil {
		return nil, err
	}
	if err := s.limit(c); err != nil {
		return nil, err
	}
	if err := c.m.checkPath(c.vars); err != nil {
		return nil, err
	}
	if err := c.m.checkQuery(c.query); err != nil {
		return nil, err
	}
	if err := c.place(); err != nil {
		return nil, err
	}
	var err error
	if c.body, err = c.m.decode(body); err != nil {
		return nil, err
	}
	if err := c.permitted(); err != nil {
		return nil, err
	}
	out, replayed, err := c.replay(body)
	if err == nil && !replayed {
		if out, err = handlers[c.m.ID](c); err == nil {
			c.remember(body, out)
			s.wake()
		}
	}
	if err != nil {
		return nil, err
	}
	return s.checkAnswer(c.m, out), nil
}

// checkAnswer holds what we say against the schema too: an answer that Google could not give
// proves nothing.
func (s *Server) checkAnswer(m *method, out object) object {
	raw, err := json.Marshal(out)
	if err != nil {
		s.t.Errorf("gcpfake: %s: %v", m.ID, err)
		return object{}
	}
	var copied any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if err := dec.Decode(&copied); err != nil {
		s.t.Errorf("gcpfake: %s: %v", m.ID, err)
	}
	checked, err := checker{service: m.service, method: m.ID, answer: true}.value("answer", m.Response, copied)
	if err != nil {
		s.t.Errorf("gcpfake: the answer of %s is not what the API may say: %v\n%s", m.ID, err, raw)
		return object{}
	}
	return checked.(object)
}

// place finds out where a call plays: its project, and the zone or region.
func (c *call) place() error {
	if c.m.service != c.s.discovery.services["compute"] {
		return nil
	}
	c.project, c.scope = c.vars["project"], "global"
	if !c.s.projects[c.project] {
		return &Error{Code: 404, Reason: "notFound", Message: fmt.Sprintf("The resource 'projects/%s' was not found", c.project)}
	}
	for variable, collection := range map[string]string{"zone": "zones", "region": "regions"} {
		name, ok := c.vars[variable]
		if !ok || c.m.ID == "compute.zones.get" || c.m.ID == "compute.regions.get" {
			continue
		}
		c.scope = collection + "/" + name
		if c.s.resources["projects/"+c.project+"/"+c.scope] == nil {
			return invalid(variable, name, "Unknown "+variable+".")
		}
		if c.s.silent[c.scope] {
			return BackendError()
		}
	}
	return nil
}

// notModelled refuses what the API has and this server has not; a test must not go on then.
func (c *call) notModelled(what string) error {
	c.s.t.Errorf("gcpfake: %s: %s is not modelled", c.m.ID, what)
	return &Error{Code: 501, Reason: "notImplemented", Message: "gcpfake does not model " + what}
}

// key is where a resource of the call's scope is.
func (c *call) key(collection, name string) string {
	return "projects/" + c.project + "/" + c.scope + "/" + collection + "/" + name
}

func answer(w http.ResponseWriter, out object, err error) {
	var failed *Error
	if err == nil {
		writeJSON(w, 200, out)
		return
	}
	if !errors.As(err, &failed) {
		failed = &Error{Code: 500, Reason: "backendError", Message: err.Error()}
	}
	for k, v := range failed.Header {
		w.Header().Set(k, v)
	}
	if failed.Plain != "" {
		w.Header().Set("Content-Type", "text/html; charset=UTF-8")
		w.WriteHeader(failed.Code)
		_, _ = io.WriteString(w, failed.Plain)
		return
	}
	writeJSON(w, failed.Code, failed.body())
}

func writeJSON(w http.ResponseWriter, code int, body object) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(body) // a client that went away is no fault of ours
}
