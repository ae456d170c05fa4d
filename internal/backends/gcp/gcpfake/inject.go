package gcpfake

import (
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Cut says how a connection breaks.
type Cut int

const (
	// CutNone answers.
	CutNone Cut = iota
	// CutBefore ends the connection; the request was not carried out.
	CutBefore
	// CutAfter carries the request out and loses the answer.
	CutAfter
	// CutMiddle carries the request out and breaks off in the answer's body.
	CutMiddle
)

// Action is what happens to one request beside or instead of its handling. The zero value
// handles it.
type Action struct {
	Delay  time.Duration // first
	Before func()        // then; may change the server
	Error  *Error        // instead of handling
	After  func()        // when handled, before the answer goes out
	Cut    Cut
}

// Request is one recorded request.
type Request struct {
	Method string     // of the API: "compute.instances.insert"; empty where it has none
	HTTP   string     // "POST"
	Path   string     // as sent
	Query  url.Values // as sent
	Header http.Header
	Body   string
	Status int // 0 while it runs and where the connection was cut
}

// Last is the last part of the path: the name of the resource, mostly.
func (r Request) Last() string { return r.Path[strings.LastIndex(r.Path, "/")+1:] }

// OnRequest sets the hook that is asked before every request; nil removes it. It is called
// without locks, by several goroutines when requests overlap.
func (s *Server) OnRequest(hook func(Request) Action) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// Requests are all requests so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Request, len(s.requests))
	for i, r := range s.requests {
		out[i] = *r
	}
	return out
}

// Count is how many requests were for this method: "compute.instances.insert"; an empty one
// counts all.
func (s *Server) Count(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if method == "" || r.Method == method {
			n++
		}
	}
	return n
}

// ForgetRequests sets every count back to zero.
func (s *Server) ForgetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

func (s *Server) before(r *http.Request, m *method, body []byte) (Action, *Request) {
	rec := &Request{HTTP: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Header: r.Header.Clone(), Body: string(body)}
	if m != nil {
		rec.Method = m.ID
	}
	s.mu.Lock()
	hook := s.hook
	s.requests = append(s.requests, rec)
	seen := *rec
	s.mu.Unlock()
	if hook == nil {
		return Action{}, rec
	}
	return hook(seen), rec
}

func (s *Server) after(rec *Request, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec.Status = 200
	if e, ok := err.(*Error); ok {
		rec.Status = e.Code
	} else if err != nil {
		rec.Status = 500
	}
}
